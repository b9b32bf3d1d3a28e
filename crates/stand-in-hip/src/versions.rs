//! The version of the runtime, and the functions and attributes that it lacks. Sources: the symbols and the code of
//! Debian's libamdhip64 5.2; for later versions, the source and the changelog of ROCm's clr.

use stand_in::{Code, Result, process};

/// Versions, in the format of the runtime.
const HIP_5_2: u32 = 50_200_000;
pub(crate) const HIP_5_5: u32 = 50_500_000;
pub(crate) const HIP_5_6: u32 = 50_600_000;
pub(crate) const HIP_5_7: u32 = 50_700_000;
pub(crate) const HIP_6: u32 = 60_000_000;

/// The numbers of the attributes that each version adds. The enumeration has more attributes.
const ATTRIBUTES: [(u32, &str); 3] = [
    (
        HIP_5_2,
        "0 3 5-6 8-11 13 16-19 23-24 26-31 39 43-44 49-51 56-61 63 65-68 71 74 81-83 87-88 \
         10002 10005-10010 10012-10016",
    ),
    (HIP_5_7, "85 89 10017"),
    (HIP_6, "1-2 4 7 12 14-15 20 22 25 32 41-42 53 62 69-70 72-73 75-76 78-79 84 90-91 10011"),
];

/// The version of the runtime.
pub(crate) fn version() -> Result<u32> {
    process::number("STAND_IN_HIP_VERSION", 60_000_000, 999_999_999)
}

/// Refuses a function that came with a later version. A program that found it in that version could not have called it.
pub(crate) fn check(since: u32) -> Result<()> {
    if version()? < since { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}

/// Whether a version has an attribute.
pub(crate) fn has_attribute(version: u32, attribute: u32) -> bool {
    let known = ATTRIBUTES.iter().take_while(|(since, _)| *since <= version.max(HIP_5_2));
    known.flat_map(|(_, numbers)| numbers.split(' ')).any(|numbers| {
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let [first, last] = [first, last].map(|number| number.parse().ok());
        first <= Some(attribute) && Some(attribute) <= last
    })
}

#[cfg(test)]
mod tests {
    use hip_sys::hiprt::hipDeviceAttribute_t as Attribute;

    use super::*;

    #[test]
    fn each_version_has_its_attributes() {
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
            let found = versions.map(|version| has_attribute(version, attribute as u32));
            assert_eq!(found, expected, "{attribute:?}");
        }
    }
}
