//! Proves that a device keeps the contract of [`runtime_core`]: ours, and any stranger's.
//!
//! One macro line per device expands to one named `#[test]` per rule. Put it in `tests/conformance.rs` of the crate
//! that has the device:
//!
//! ```no_run
//! # fn main() {}
//! # mod backend { pub fn open(_: usize) -> runtime_core::Result<runtime_core::Device> { unimplemented!() } }
//! conformance::accelerator! {
//!     name: "mine",
//!     open: |index| backend::open(index),
//!     kernels: conformance::kernels::host_functions(),
//! }
//! ```
//!
//! - `open` gives a new instance of device 0 or 1 at every call. `Unavailable` for device 0 says that this machine has
//!   none: every rule skips then and prints why. Any other error fails. Without a device 1, a second instance of
//!   device 0 takes its place.
//! - `kernels` is a bundle with the functions of [`kernels`], in a format the device takes. There they are as Rust
//!   functions, as OpenCL C, as CUDA C and PTX, and as HIP C; for any other format bring the table's kernels yourself, as
//!   `ModuleBundle::new().with(ModuleImage::binary(ImageFormat::SpirV, include_bytes!("kernels.spv")))` does.
//! - `unsupported` leaves out rules that the device cannot keep for good. `expected_failures` names those it does not
//!   keep yet: the test fails when the rule passes. Both need a reason, and a name that is no rule does not compile:
//!
//! ```no_run
//! # fn main() {}
//! # mod backend { pub fn open(_: usize) -> runtime_core::Result<runtime_core::Device> { unimplemented!() } }
//! # mod macros {
//! # use super::backend;
//! conformance::accelerator! {
//!     name: "mine",
//!     open: backend::open,
//!     kernels: conformance::kernels::host_functions(),
//!     unsupported: { dropping_does_not_wait_for_the_work: "the driver frees synchronously" },
//!     expected_failures: { counters_count: "the profiler's numbers wrap around" },
//! }
//! # }
//! ```
//!
//! - `faults: faults_may_end_the_process`, as the last line, is for a device whose driver may end the process when a program is
//!   stopped: [`Fixture::faults_may_end_the_process`].
//!
//! A rule is a public function of [`mod@rules`] whose first sentence says what a device must do; call it by hand with a
//! [`Fixture`] to debug it. A rule about an ability that the device lacks checks that the accessor, the capability
//! report and the fallback agree, and passes.
//!
//! # Environment
//!
//! | variable | effect |
//! |---|---|
//! | `CONFORMANCE_STRICT=1` | a rule that skips itself fails, the absent device among the reasons; declared exceptions are still reported as skipped |
//! | `CONFORMANCE_REPORT=FILE` | appends `{"device":…, "rule":…, "outcome":"passed\|failed\|skipped", "reason":…}` for each rule, one line each; several processes may share the file |
//! | `CONFORMANCE_TIMEOUT=SECONDS` | how long a rule may take before it fails as hanging; 60 by default |
//!
//! Rules run in parallel, in threads of one process or in processes of their own. Those that make the device stop a
//! program always get a process of their own, since some drivers do not recover within one, and others end it.
#![deny(unsafe_code)]

mod data;
mod fixture;
pub mod kernels;
mod oracle;
mod outcome;
mod report;
mod rig;
pub mod rules;
mod run;
mod stranger;

pub use fixture::Fixture;
pub use outcome::{Outcome, Stop};
pub use run::{Test, run};

/// A rule: what a device must do, as a function that finds out whether it does.
pub type Rule = fn(&Fixture) -> Outcome;

/// The names of all rules.
pub fn rules() -> &'static [&'static str] {
    rules::NAMES
}

/// Makes a test of every rule for one device; see the [crate's documentation](crate).
#[macro_export]
macro_rules! accelerator {
    (
        name: $name:expr,
        open: $open:expr,
        kernels: $kernels:expr
        $(, unsupported: { $($unsupported:ident: $cannot:expr),* $(,)? })?
        $(, expected_failures: { $($failure:ident: $not_yet:expr),* $(,)? })?
        $(, faults: $faults:ident)?
        $(,)?
    ) => {
        static FIXTURE: ::std::sync::LazyLock<$crate::Fixture> = ::std::sync::LazyLock::new(|| {
            $crate::Fixture::new($name, $open, $kernels)
                $($(.unsupported(stringify!($unsupported), $cannot))*)?
                $($(.expected_failure(stringify!($failure), $not_yet))*)?
                $(.$faults())?
        });
        // A name that is no rule does not compile.
        const _: &[$crate::Rule] = &[
            $($($crate::rules::$unsupported,)*)?
            $($($crate::rules::$failure,)*)?
        ];
        $crate::for_each_rule! { $crate::tests }
    };
}

/// The tests of one fixture, a module for each group of rules.
#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    ($($group:ident isolated: $isolated:literal { $($rule:ident,)* })*) => {$(
        mod $group {
            $(
                #[test]
                fn $rule() {
                    $crate::run(&super::FIXTURE, $crate::Test {
                        rule: stringify!($rule),
                        check: $crate::rules::$rule,
                        path: concat!(module_path!(), "::", stringify!($rule)),
                        isolated: $isolated,
                    });
                }
            )*
        }
    )*};
}
