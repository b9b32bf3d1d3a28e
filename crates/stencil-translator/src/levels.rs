//! The levels of processors for which rows are compiled.

/// A level of x86-64 processors above the baseline.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The name.
    pub name: &'static str,
    /// The features that a function for this level enables.
    pub features: &'static str,
    is_present: fn() -> bool,
}

impl Level {
    /// Whether the processor that this runs on has all these features.
    pub fn is_present(&self) -> bool {
        (self.is_present)()
    }
}

macro_rules! level {
    ($name:literal: $first:tt $($feature:tt)*) => {
        Level {
            name: $name,
            features: concat!($first $(, ",", $feature)*),
            is_present: || {
                #[cfg(target_arch = "x86_64")]
                return std::arch::is_x86_feature_detected!($first)
                    $(&& std::arch::is_x86_feature_detected!($feature))*;
                #[cfg(not(target_arch = "x86_64"))]
                false
            },
        }
    };
}

/// The levels for which a program compiles the rows of a stencil, in ascending order. Rows have the same bits at each of
/// them.
#[rustfmt::skip]
pub const LEVELS: [Level; 2] = [
    level!("v3": "avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe"),
    level!("v4": "avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe"
        "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"),
];
