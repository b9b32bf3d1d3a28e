//! The rules for embedded devices, which the macro [`embedded!`](crate::embedded!) instantiates.
//!
//! A device supplies a program with these functions and objects. All are C functions.
//!
//! | name | what it is |
//! |---|---|
//! | `int32_t add(int32_t, int32_t)`, `int64_t add_long(int64_t, int64_t)` | the sum |
//! | `float add_float(float, float)`, `double add_double(double, double)` | the sum |
//! | `double mix(…)`, with the 18 parameters `int8_t, double, int64_t, float, uint8_t, double, int32_t, float, int64_t, double, int32_t, double, uint16_t, float, double, double, double, float` | the sum of the arguments times 1, 2, 3, 5, 7 and so on, the primes up to 59 |
//! | `int32_t count(void)` | adds 1 to a variable that is 40 when the program starts, and returns it |
//! | `uint32_t numbers[1024]` | an object that the program does not write |
//! | `uint32_t sum(const uint32_t *, uint32_t)` | the sum of that many numbers |
//! | `void say(const char *)` | prints a text that ends with a zero byte |
//! | `void illegal(void)` | faults at its first instruction |
//! | `void hang(void)` | a loop without end |
//! | `void nothing(void)` | returns |
//!
//! The program says how many bytes the functions `add` and `sum` have. The rules about code copy these bytes: they
//! depend on no address, and `add` is not longer than `sum`.

mod fixture;
pub mod rules;

pub use fixture::EmbeddedFixture;

/// Generates a test for every rule, for one embedded device.
///
/// `open` returns a new instance of the device, without a program. `program` is an ELF file with the functions of
/// [this table](mod@crate::embedded). `free` is the address of 4096 bytes of memory that the program does not use, and
/// that can hold code. `abilities`, `unsupported` and `expected_failures` are those of
/// [`accelerator!`](crate::accelerator!). `lacks` is for a device that has no console. If `open` returns `Unavailable`,
/// every rule skips and prints why.
///
/// ```no_run
/// # fn main() {}
/// # mod board { pub fn open() -> runtime_core::Result<runtime_core::Embedded> { unimplemented!() } }
/// conformance::embedded! {
///     name: "board",
///     open: board::open,
///     program: b"an ELF file",
///     free: 0x8010_0000,
///     abilities: [Counters],
///     lacks: [Console],
/// }
/// ```
#[macro_export]
macro_rules! embedded {
    (
        name: $name:expr,
        open: $open:expr,
        program: $program:expr,
        free: $free:expr
        $(, abilities: [$($ability:ident),* $(,)?])?
        $(, lacks: [$($lack:ident),* $(,)?])?
        $(, unsupported: { $($unsupported:ident: $cannot:expr),* $(,)? })?
        $(, expected_failures: { $($failure:ident: $not_yet:expr),* $(,)? })?
        $(,)?
    ) => {
        static FIXTURE: ::std::sync::LazyLock<$crate::embedded::EmbeddedFixture> =
            ::std::sync::LazyLock::new(|| {
                $crate::embedded::EmbeddedFixture::new($name, $open, $program, $free)
                    $(.abilities([$($crate::Ability::$ability),*]))?
                    $(.lacks([$($crate::Ability::$lack),*]))?
                    $($(.unsupported(stringify!($unsupported), $cannot))*)?
                    $($(.expected_failure(stringify!($failure), $not_yet))*)?
            });
        // A name that is not a rule does not compile.
        const _: &[fn(&$crate::embedded::EmbeddedFixture) -> $crate::Outcome] = &[
            $($($crate::embedded::rules::$unsupported,)*)?
            $($($crate::embedded::rules::$failure,)*)?
        ];
        $crate::for_each_embedded_rule! { $crate::embedded_tests }
    };
}

/// The tests of one fixture.
#[doc(hidden)]
#[macro_export]
macro_rules! embedded_tests {
    ($($rule:ident,)*) => {$(
        #[test]
        fn $rule() {
            $crate::run(&*FIXTURE, $crate::Test {
                rule: stringify!($rule),
                check: $crate::embedded::rules::$rule,
                path: concat!(module_path!(), "::", stringify!($rule)),
                isolated: false,
            });
        }
    )*};
}
