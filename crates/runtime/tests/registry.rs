//! Errors of the facade's registry for devices that are absent.

use runtime::ErrorKind;

#[test]
fn a_backend_that_is_not_compiled_in_names_its_feature() {
    let registry = runtime::registry();
    for (name, compiled) in runtime::BACKENDS {
        let error = registry.open(&format!("{name}:0?no-such-option=1")).unwrap_err();
        let reported = error.message().contains(&format!("without the feature `{name}`"));
        assert_eq!(reported, !compiled, "{error}");
        assert!(*compiled || error.kind() == ErrorKind::UnknownDevice, "{error}");
    }
}
