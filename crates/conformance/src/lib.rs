//! Tests that a device keeps the contract of [`runtime_core`]. It works for the backends of this repository and for any
//! other.
//!
//! One macro line per device expands to one `#[test]` for each rule, named after the rule. Put the line into
//! `tests/conformance.rs` of the crate that has the device:
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
//! - `open` returns a new instance of device 0 or 1 at every call. `Unavailable` for device 0 means that this machine
//!   does not have the device: every rule then skips and prints why. Any other error is a failure. If there is no
//!   device 1, a second instance of device 0 replaces it.
//! - `kernels` is a bundle with the functions of [`kernels`], in a format that the device supports. That module has
//!   them as Rust functions, OpenCL C, CUDA C, PTX and HIP C. For any other format, supply the kernels of the table
//!   yourself, for instance with `ModuleBundle::new().with(ModuleImage::binary(ImageFormat::SpirV,
//!   include_bytes!("kernels.spv")))`.
//! - `unsupported` lists rules that the device can never keep; they are skipped. `expected_failures` lists rules that
//!   it does not keep yet; such a test fails when the rule passes. Both need a reason. A name that is not a rule does
//!   not compile:
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
//! - `faults: faults_may_end_the_process`, as the last line, is for a device whose driver may end the process when a
//!   program is stopped: [`Fixture::faults_may_end_the_process`].
//!
//! A rule is a public function of [`mod@rules`]. Its first sentence says what a device must do. To debug a rule, call
//! it directly with a [`Fixture`]. A rule about an [`Ability`] that the device lacks does not apply, and its report
//! says so. `abilities` lists those that the device must have; if it loses one, the rules about it fail:
//!
//! ```no_run
//! # fn main() {}
//! # mod backend { pub fn open(_: usize) -> runtime_core::Result<runtime_core::Device> { unimplemented!() } }
//! conformance::accelerator! {
//!     name: "mine",
//!     open: |index| backend::open(index),
//!     kernels: conformance::kernels::host_functions(),
//!     abilities: [Graphs, MemoryPool],
//! }
//! ```
//!
//! Embedded devices have rules of their own: see [`embedded!`](crate::embedded!).
//!
//! # Environment
//!
//! | variable | effect |
//! |---|---|
//! | `CONFORMANCE_STRICT=1` | a rule that skips itself fails, also if the device is absent; declared exceptions are still reported as skipped |
//! | `CONFORMANCE_REPORT=FILE` | appends one line `{"device":…, "rule":…, "outcome":"passed\|failed\|not applicable\|skipped", "reason":…}` for each rule; several processes may share the file |
//! | `CONFORMANCE_TIMEOUT=SECONDS` | the time after which a rule fails as hanging; 60 by default |
//!
//! Rules run in parallel, in threads of one process or in separate processes. Rules that make the device stop a program
//! always run in a separate process, because some drivers do not recover within the process, and others end it.
#![deny(unsafe_code)]

mod ability;
mod data;
pub mod embedded;
mod fixture;
pub mod kernels;
mod null_device;
mod oracle;
mod outcome;
mod report;
pub mod rules;
mod run;
mod setup;
mod subject;

pub use ability::Ability;
pub use fixture::Fixture;
pub use null_device::NullDevice;
pub use outcome::{Outcome, Stop};
pub use run::{Rule, Test, run};
pub use subject::{Expectations, Subject};

/// The names of all rules.
pub fn rules() -> &'static [&'static str] {
    rules::NAMES
}

/// Generates a test for every rule, for one device; see the [crate's documentation](crate).
#[macro_export]
macro_rules! accelerator {
    (
        name: $name:expr,
        open: $open:expr,
        kernels: $kernels:expr
        $(, abilities: [$($ability:ident),* $(,)?])?
        $(, unsupported: { $($unsupported:ident: $cannot:expr),* $(,)? })?
        $(, expected_failures: { $($failure:ident: $not_yet:expr),* $(,)? })?
        $(, faults: $faults:ident)?
        $(,)?
    ) => {
        static FIXTURE: ::std::sync::LazyLock<$crate::Fixture> = ::std::sync::LazyLock::new(|| {
            $crate::Fixture::new($name, $open, $kernels)
                $(.abilities([$($crate::Ability::$ability),*]))?
                $($(.unsupported(stringify!($unsupported), $cannot))*)?
                $($(.expected_failure(stringify!($failure), $not_yet))*)?
                $(.$faults())?
        });
        // A name that is not a rule does not compile.
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
                    $crate::run(&*super::FIXTURE, $crate::Test {
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
