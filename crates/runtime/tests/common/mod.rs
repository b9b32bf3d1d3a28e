//! Shared code of the tests of examples.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The example as `cargo test` has built it, next to the folder of the test program.
///
/// `cargo test --test NAME` does not build examples. An example that is older than its sources is therefore refused,
/// because the test would test the old code.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let example = profile.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    let Some(built) = modified(&example) else {
        panic!("{} is missing; `cargo build --examples` makes it", example.display());
    };
    let sources = fs::read_to_string(example.with_extension("d")).unwrap();
    for source in sources.split_whitespace().skip(1) {
        let fresh = modified(Path::new(source)).is_none_or(|changed| changed <= built);
        assert!(
            fresh,
            "{} is older than {source}; `cargo build --examples` renews it",
            example.display()
        );
    }
    example
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}
