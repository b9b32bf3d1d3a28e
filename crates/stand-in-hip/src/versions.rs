//! The functions and attributes that each version of the runtime lacks. Sources: the symbols and the code of Debian's
//! libamdhip64 5.2, and for later versions the sources and the changelog of ROCm's clr.

use std::ffi::c_uint;
use std::ops::RangeInclusive;

use stand_in::{Code, Result};

use crate::device::version;

/// Versions in the runtime's own form.
pub(crate) const HIP_5_7: u32 = 50_700_000;
pub(crate) const HIP_6: u32 = 60_000_000;
/// The oldest that there is a stand-in for.
const HIP_5_2: u32 = 50_200_000;

/// Functions of the stand-in that came after HIP 5.2, and when.
const FUNCTIONS: &[(&str, u32)] = &[
    ("hipDrvGetErrorName", 50_300_000),
    ("hipDrvGetErrorString", 50_300_000),
    ("hipGetDevicePropertiesR0600", HIP_6),
    ("hipGraphUpload", 50_300_000),
    ("hipLaunchHostFunc", 50_300_000),
    ("hipModuleLaunchCooperativeKernel", 50_500_000),
    ("hipStreamGetDevice", 50_600_000),
];

/// Attributes that a version answers, by their numbers, beside those of the versions before it. The enumeration has more.
const ATTRIBUTES: &[(u32, &[RangeInclusive<c_uint>])] = &[
    (
        HIP_5_2,
        &[
            0..=0,
            3..=3,
            5..=6,
            8..=11,
            13..=13,
            16..=19,
            23..=24,
            26..=31,
            39..=39,
            43..=44,
            49..=51,
            56..=61,
            63..=63,
            65..=68,
            71..=71,
            74..=74,
            81..=83,
            87..=88,
            10_002..=10_002,
            10_005..=10_010,
            10_012..=10_016,
        ],
    ),
    (HIP_5_7, &[85..=85, 89..=89, 10_017..=10_017]),
    (
        HIP_6,
        &[
            1..=2,
            4..=4,
            7..=7,
            12..=12,
            14..=15,
            20..=20,
            22..=22,
            25..=25,
            32..=32,
            41..=42,
            53..=53,
            62..=62,
            69..=70,
            72..=73,
            75..=76,
            78..=79,
            84..=84,
            90..=91,
            10_011..=10_011,
        ],
    ),
];

/// Refuses a function that the version lacks: a program that found it there could not have called it.
pub(crate) fn check(function: &str) -> Result<()> {
    let since = FUNCTIONS.iter().find(|(name, _)| *name == function).map_or(0, |(_, since)| *since);
    if version()? < since { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}

/// Whether a version answers an attribute.
pub(crate) fn answers(version: u32, attribute: c_uint) -> bool {
    let known = ATTRIBUTES.iter().take_while(|(since, _)| *since <= version.max(HIP_5_2));
    known.flat_map(|(_, numbers)| *numbers).any(|numbers| numbers.contains(&attribute))
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "loads the runtime")]
    use std::fs;

    use hip_sys::hiprt::hipDeviceAttribute_t as Attribute;

    use super::*;

    #[test]
    fn attributes_are_answered_from_their_version_on() {
        let versions = [50_221_153, 50_731_921, 60_000_000, 70_051_831];
        for (attribute, expected) in [
            (Attribute::hipDeviceAttributeMaxThreadsPerBlock, [true; 4]),
            (Attribute::hipDeviceAttributeMemoryPoolsSupported, [true; 4]),
            (Attribute::hipDeviceAttributePciBusId, [true; 4]),
            (Attribute::hipDeviceAttributeWallClockRate, [false, true, true, true]),
            (Attribute::hipDeviceAttributePciDomainID, [false, false, true, true]),
            (Attribute::hipDeviceAttributeAsyncEngineCount, [false, false, true, true]),
            (Attribute::hipDeviceAttributeUuid, [false; 4]),
        ] {
            let found = versions.map(|version| answers(version, attribute as c_uint));
            assert_eq!(found, expected, "{attribute:?}");
        }
    }

    /// Of what the stand-in exports, the runtime of 5.2 has all but what is in the table.
    #[test]
    fn functions_that_hip_5_2_lacks_are_in_the_table() {
        // SAFETY: the runtime's initialisers need no device.
        let Ok(runtime) = (unsafe { libloading::Library::new("libamdhip64.so.5") }) else {
            eprintln!("skipped: no libamdhip64.so.5");
            return;
        };
        let mut number = 0;
        // SAFETY: the runtime's headers declare the function so.
        let ask =
            unsafe { runtime.get::<unsafe extern "C" fn(*mut i32) -> u32>("hipRuntimeGetVersion") };
        // SAFETY: the number is written to where it may be.
        assert_eq!(unsafe { ask.unwrap()(&mut number) }, 0);
        if number / 100_000 != 502 {
            eprintln!("skipped: libamdhip64.so.5 is {number}");
            return;
        }
        let mut lacking = Vec::new();
        for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for line in text.lines().filter_map(|line| line.strip_prefix("extern \"C\" fn ")) {
                let name = line.split('(').next().unwrap();
                // SAFETY: the function is not called.
                if unsafe { runtime.get::<unsafe extern "C" fn()>(name) }.is_err() {
                    lacking.push(name.to_owned());
                }
            }
        }
        lacking.sort();
        assert_eq!(lacking, FUNCTIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
}
