//! Single instructions against Rust's own arithmetic, each on all pairs of telling values and on random ones.
#![expect(clippy::cast_possible_truncation, reason = "instructions take low bits")]

use std::sync::LazyLock;

use stand_in::ptx::Module;

use crate::memory::{Memory, launch, line, p};

/// Registers 1 to 4 of every kind have the operands, register 0 gets the result.
const KINDS: [(char, &str); 6] =
    [('h', "b16"), ('r', "b32"), ('d', "b64"), ('f', "f32"), ('g', "f64"), ('p', "pred")];

pub(super) fn kernel(instructions: &str) -> String {
    let result = instructions.split('%').find_map(|rest| {
        let mut letters = rest.chars();
        let kind = letters.next()?;
        (letters.next() == Some('0')).then_some(kind)
    });
    let registers: String =
        KINDS.iter().map(|(kind, ty)| format!(".reg .{ty} %{kind}<9>;\n")).collect();
    let operands: String = (1..=4)
        .map(|i| {
            format!(
                "ld.global.u64 %d{i}, [%in+{}];\ncvt.u32.u64 %r{i}, %d{i};\ncvt.u16.u64 %h{i}, %d{i};\n\
                 mov.b32 %f{i}, %r{i};\nmov.b64 %g{i}, %d{i};\nsetp.ne.u64 %p{i}, %r{i}, 0;\n",
                8 * (i - 1)
            )
        })
        .collect();
    let store = match result {
        Some('h') => "st.global.b16 [%out], %h0;",
        Some('r') => "st.global.b32 [%out], %r0;",
        Some('d') => "st.global.b64 [%out], %d0;",
        Some('f') => "st.global.f32 [%out], %f0;",
        Some('g') => "st.global.f64 [%out], %g0;",
        Some('p') => "selp.b64 %d0, 1, 0, %p0;\nst.global.b64 [%out], %d0;",
        other => panic!("{other:?} in {instructions}"),
    };
    format!(
        ".version 8.0\n.target sm_60\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{registers}\
         .reg .b64 %in, %out;\n.reg .b32 %t;\nmov.u32 %t, %tid.x;\nld.param.u64 %in, [in];\n\
         ld.param.u64 %out, [out];\nmad.wide.u32 %in, %t, 32, %in;\nmad.wide.u32 %out, %t, 8, %out;\n\
         {operands}{instructions}\n{store}\nret;\n}}\n"
    )
}

pub(super) type Operands = [u64; 4];

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// All pairs of the values, with further operands from among them.
fn pairs(values: &[u64]) -> Vec<Operands> {
    let mut state = 1;
    let mut all = Vec::new();
    for a in values {
        for b in values {
            let mut other = || values[random(&mut state) as usize % values.len()];
            all.push([*a, *b, other(), other()]);
        }
    }
    all
}

pub(super) static INTEGERS: LazyLock<Vec<Operands>> = LazyLock::new(|| {
    let mut values = vec![0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256];
    for bits in [8, 16, 32, 64] {
        let highest = 1_u64 << (bits - 1);
        values.extend([highest - 1, highest, highest + 1, highest.wrapping_mul(2).wrapping_sub(1)]);
    }
    let mut all = pairs(&values);
    let mut state = 2;
    all.extend((0..400).map(|_| [0; 4].map(|_: u64| random(&mut state))));
    all
});

const FLOATS: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.3,
    -0.7,
    255.5,
    65504.0,
    70000.0,
    2147483648.0,
    -3e9,
    1e19,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e-40,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

pub(super) static SINGLES: LazyLock<Vec<Operands>> = LazyLock::new(|| {
    let mut all = pairs(&FLOATS.map(|value| value.to_bits().into()));
    let mut state = 3;
    let mut float = |_: u64| {
        let bits = random(&mut state) as u32;
        // Exponents near each other, so that sums are no copies.
        u64::from((bits & 0x807f_ffff) | (0x3c00_0000 + (bits >> 3 & 0x0780_0000)))
    };
    all.extend((0..600).map(|_| [0; 4].map(&mut float)));
    all
});

pub(super) static DOUBLES: LazyLock<Vec<Operands>> = LazyLock::new(|| {
    let more = [1e-310, 1e300, -1e-300, 9.2e18, 4503599627370497.5];
    let values: Vec<u64> =
        FLOATS.iter().map(|value| f64::from(*value)).chain(more).map(f64::to_bits).collect();
    let mut all = pairs(&values);
    let mut state = 4;
    let mut float = |_: u64| {
        let bits = random(&mut state);
        (bits & 0x800f_ffff_ffff_ffff)
            | (0x3fc0_0000_0000_0000 + (bits >> 3 & 0x00f0_0000_0000_0000))
    };
    all.extend((0..600).map(|_| [0; 4].map(&mut float)));
    all
});

/// Runs the instructions on all operands and compares the low bits, as many as the result has; a NaN is a NaN.
pub(super) fn check(instructions: &str, operands: &[Operands], expected: impl Fn(Operands) -> u64) {
    let text = kernel(instructions);
    let module = Module::parse(&text).unwrap_or_else(|log| panic!("{log}\n{text}"));
    for operands in operands.chunks(1024) {
        let memory = Memory::default();
        let (from, to) = (memory.upload(operands), memory.upload(&vec![0_u64; operands.len()]));
        let threads = u32::try_from(operands.len()).unwrap();
        launch(&module, "k", &line(1, threads), &[p(from), p(to)], &memory).unwrap();
        for (found, operands) in
            memory.download::<u64>(to, operands.len()).into_iter().zip(operands)
        {
            let expected = expected(*operands);
            let same = if instructions.contains("%f0") {
                same_float(
                    f32::from_bits(found as u32).into(),
                    f32::from_bits(expected as u32).into(),
                )
            } else if instructions.contains("%g0") {
                same_float(f64::from_bits(found), f64::from_bits(expected))
            } else {
                let bits = match instructions {
                    text if text.contains("%h0") => 16,
                    text if text.contains("%r0") => 32,
                    _ => 64,
                };
                (found ^ expected) << (64 - bits) == 0
            };
            assert!(same, "{instructions} of {operands:x?} is {found:#x}, not {expected:#x}");
        }
    }
}

fn same_float(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// The name of an instruction with its operands, and what it computes.
pub(super) type Case = (&'static str, fn(Operands) -> u64);

/// A name, and the function of that name.
pub(super) type Function<T> = (&'static str, fn(T) -> T);

pub(super) fn check_all(operands: &[Operands], cases: &[Case]) {
    for (text, expected) in cases {
        check(text, operands, expected);
    }
}

pub(super) fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The exact value rounded in a direction: `z`, `m` or `p`.
pub(super) fn toward(exact: f64, direction: char) -> f32 {
    let nearest = exact as f32;
    let below = if f64::from(nearest) > exact { nearest.next_down() } else { nearest };
    let above = if f64::from(nearest) < exact { nearest.next_up() } else { nearest };
    match direction {
        'm' => below,
        'p' => above,
        _ => {
            if exact > 0.0 {
                below
            } else {
                above
            }
        }
    }
}
