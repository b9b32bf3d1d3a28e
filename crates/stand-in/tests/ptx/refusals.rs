//! Texts that are refused.

use stand_in::ptx::Module;

use crate::harness::kernel;

#[test]
fn what_is_unknown_is_refused_with_its_line() {
    let refused = |instructions: &str| Module::parse(&kernel(instructions)).unwrap_err();
    for (instructions, reason) in [
        ("frobnicate.b32 %r0, %r1;", "unknown instruction"),
        ("add.rq.f32 %f0, %f1, %f2;", "unknown modifier `.rq`"),
        ("add.s32 %r0, %r1;", "2 operands instead of 3"),
        ("add.s32 %r0, %r1, %r9;", "`%r9` is not declared"),
        ("mul.wide.u64 %d0, %d1, %d2;", "unknown for this type"),
        ("@%p1 bra NOWHERE;\nmov.u32 %r0, 0;", "label `NOWHERE` is nowhere"),
        ("L: mov.u32 %r0, 0;\nL: ret;", "label `L` twice"),
        ("call (%r0), f, ();", "`f` is no function"),
        ("mov.u32 %r0 5;", "`5` instead of `,`"),
        ("ld.global.v2.u64 %d0, [%d1];", "for 2"),
    ] {
        let log = refused(instructions);
        assert!(log.starts_with("line ") && log.contains(reason), "{instructions}: {log}");
    }
    let text = kernel("mov.u32 %r0, 0;\nnonsense;");
    let line = 1 + text.lines().position(|line| line == "nonsense;").unwrap();
    assert!(Module::parse(&text).unwrap_err().starts_with(&format!("line {line}: nonsense")));
    for (text, reason) in [
        ("", "line 1: the end of the text instead of a `.version`"),
        (".version 8.0\n.target sm_x\n", "line 2: `sm_x`"),
        (".version 8.0\n.target sm_60\n.address_size 32\n", "line 3: addresses of 32 bits"),
        (".version 8.0\n.target sm_60\n#\n", "line 3: unexpected character '#'"),
        (".version 8.0\n.target sm_60\n.visible .entry k()\n{\n", "the end of the text"),
    ] {
        let log = Module::parse(text).unwrap_err();
        assert!(log.contains(reason), "{text:?}: {log}");
    }
}
