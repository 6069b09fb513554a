//! The element types of ggml: numbers, GGUF spelling and block sizes, one row each.
//!
//! Numbers that ggml has retired (4, 5, 31–33, 36–38) and those newer than this list have no entry: a tensor that uses
//! one is kept apart by the reader and is an error when somebody asks for it.

macro_rules! ggml_types {
    ($($variant:ident = $number:literal, $name:literal, $len:literal, $bytes:literal;)*) => {
        /// An element type. Block types hold `block_len()` consecutive elements of a row in `block_bytes()` bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum GgmlType {
            $($variant = $number,)*
        }

        impl GgmlType {
            /// Every type, in the order of their numbers.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant),*];

            /// The type with this number in a file's tensor table.
            pub const fn from_u32(number: u32) -> Option<GgmlType> {
                match number {
                    $($number => Some(GgmlType::$variant),)*
                    _ => None,
                }
            }

            /// GGUF spelling, such as `"q4_K"`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(GgmlType::$variant => $name,)*
                }
            }

            /// The type with this exact GGUF spelling.
            pub fn from_name(name: &str) -> Option<GgmlType> {
                match name {
                    $($name => Some(GgmlType::$variant),)*
                    _ => None,
                }
            }

            /// Elements per block; 1 for plain numbers.
            pub const fn block_len(self) -> usize {
                match self {
                    $(GgmlType::$variant => $len,)*
                }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(GgmlType::$variant => $bytes,)*
                }
            }
        }
    };
}

ggml_types! {
    F32 = 0, "f32", 1, 4;
    F16 = 1, "f16", 1, 2;
    Q4_0 = 2, "q4_0", 32, 18;
    Q4_1 = 3, "q4_1", 32, 20;
    Q5_0 = 6, "q5_0", 32, 22;
    Q5_1 = 7, "q5_1", 32, 24;
    Q8_0 = 8, "q8_0", 32, 34;
    Q8_1 = 9, "q8_1", 32, 36;
    Q2K = 10, "q2_K", 256, 84;
    Q3K = 11, "q3_K", 256, 110;
    Q4K = 12, "q4_K", 256, 144;
    Q5K = 13, "q5_K", 256, 176;
    Q6K = 14, "q6_K", 256, 210;
    Q8K = 15, "q8_K", 256, 292;
    Iq2Xxs = 16, "iq2_xxs", 256, 66;
    Iq2Xs = 17, "iq2_xs", 256, 74;
    Iq3Xxs = 18, "iq3_xxs", 256, 98;
    Iq1S = 19, "iq1_s", 256, 50;
    Iq4Nl = 20, "iq4_nl", 32, 18;
    Iq3S = 21, "iq3_s", 256, 110;
    Iq2S = 22, "iq2_s", 256, 82;
    Iq4Xs = 23, "iq4_xs", 256, 136;
    I8 = 24, "i8", 1, 1;
    I16 = 25, "i16", 1, 2;
    I32 = 26, "i32", 1, 4;
    I64 = 27, "i64", 1, 8;
    F64 = 28, "f64", 1, 8;
    Iq1M = 29, "iq1_m", 256, 56;
    Bf16 = 30, "bf16", 1, 2;
    Tq1_0 = 34, "tq1_0", 256, 54;
    Tq2_0 = 35, "tq2_0", 256, 66;
    Mxfp4 = 39, "mxfp4", 32, 17;
}

impl GgmlType {
    /// The type's number in a file's tensor table.
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// Whether the type packs several elements into a block.
    pub const fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `ne0` elements; `None` if that is no whole number of blocks or does not fit 64 bits.
    pub const fn row_bytes(self, ne0: u64) -> Option<u64> {
        let block_len = self.block_len() as u64;
        if !ne0.is_multiple_of(block_len) {
            return None;
        }
        (ne0 / block_len).checked_mul(self.block_bytes() as u64)
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        assert_eq!(GgmlType::ALL.len(), 32);
        for &ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_u32(ty.as_u32()), Some(ty));
            assert_eq!(GgmlType::from_name(ty.name()), Some(ty));
        }
        for number in [4, 5, 31, 32, 33, 36, 37, 38, 40, u32::MAX] {
            assert_eq!(GgmlType::from_u32(number), None);
        }
        assert_eq!(GgmlType::from_name("Q4_0"), None);
    }

    #[test]
    fn row_bytes_refuses_parts_of_blocks_and_overflow() {
        assert_eq!(GgmlType::Q4_0.row_bytes(64), Some(36));
        assert_eq!(GgmlType::Q4_0.row_bytes(33), None);
        assert_eq!(GgmlType::Q6K.row_bytes(256), Some(210));
        assert_eq!(GgmlType::F32.row_bytes(u64::MAX), None);
        assert_eq!(GgmlType::I8.row_bytes(u64::MAX), Some(u64::MAX));
    }
}
