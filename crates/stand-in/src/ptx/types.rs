//! Types of instructions and registers.

macro_rules! types {
    ($($variant:ident $name:literal $bytes:literal;)*) => {
        /// The type of an instruction or a register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Type {
            $($variant,)*
        }

        impl Type {
            /// The type of this name, without its dot.
            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its size in bytes.
            pub(super) fn size(self) -> usize {
                match self {
                    $(Self::$variant => $bytes,)*
                }
            }
        }
    };
}

types! {
    Pred "pred" 1;
    B8 "b8" 1;
    B16 "b16" 2;
    B32 "b32" 4;
    B64 "b64" 8;
    U8 "u8" 1;
    U16 "u16" 2;
    U32 "u32" 4;
    U64 "u64" 8;
    S8 "s8" 1;
    S16 "s16" 2;
    S32 "s32" 4;
    S64 "s64" 8;
    F32 "f32" 4;
    F64 "f64" 8;
}

impl Type {
    pub(super) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}
