//! Functions from the bits of operands to the bits of the result.

pub(in super::super) type Unary = fn(u64) -> u64;
pub(in super::super) type Binary = fn(u64, u64) -> u64;
pub(in super::super) type Ternary = fn(u64, u64, u64) -> u64;
pub(in super::super) type Quaternary = fn(u64, u64, u64, u64) -> u64;
/// From three operands and the carry to the result and the new carry.
pub(in super::super) type Carry = fn(u64, u64, u64, u64) -> (u64, u64);

/// A type as it stands in the low bits of a slot.
pub(super) trait Bits: Copy {
    fn of(slot: u64) -> Self;
    fn slot(self) -> u64;
}

macro_rules! bits {
    ($($type:ty: |$slot:ident| $of:expr, |$value:ident| $into:expr;)*) => {
        $(impl Bits for $type {
            #[expect(clippy::allow_attributes, reason = "some of the types need no cast")]
            #[allow(clippy::cast_possible_truncation, reason = "takes the low bits")]
            fn of($slot: u64) -> Self {
                $of
            }

            #[expect(clippy::allow_attributes, reason = "some of the types need no cast")]
            #[allow(clippy::cast_sign_loss, reason = "the bits stay")]
            fn slot(self) -> u64 {
                let $value = self;
                $into
            }
        })*
    };
}

bits! {
    bool: |slot| slot & 1 == 1, |value| u64::from(value);
    u8: |slot| slot as u8, |value| u64::from(value);
    u16: |slot| slot as u16, |value| u64::from(value);
    u32: |slot| slot as u32, |value| u64::from(value);
    u64: |slot| slot, |value| value;
    i8: |slot| slot as i8, |value| u64::from(value as u8);
    i16: |slot| slot as i16, |value| u64::from(value as u16);
    i32: |slot| slot as i32, |value| u64::from(value as u32);
    i64: |slot| slot as i64, |value| value as u64;
    f32: |slot| f32::from_bits(slot as u32), |value| u64::from(value.to_bits());
    f64: |slot| f64::from_bits(slot), |value| value.to_bits();
}

/// A function of typed operands as one of slots.
macro_rules! slots {
    (|$($operand:ident: $type:ty),+| $result:expr) => {
        |$($operand: u64),+| {
            $(let $operand = <$type as Bits>::of($operand);)+
            Bits::slot($result)
        }
    };
}
pub(super) use slots;
