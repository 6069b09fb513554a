//! Conversions written to be read; `half` does the rounding.

use half::{bf16, f16};

pub fn f16_to_f32(from: &[u16], to: &mut [f32]) {
    from.iter().zip(to).for_each(|(f, t)| *t = f16::from_bits(*f).to_f32_const());
}

pub fn f32_to_f16(from: &[f32], to: &mut [u16]) {
    from.iter().zip(to).for_each(|(f, t)| *t = f16::from_f32_const(*f).to_bits());
}

pub fn bf16_to_f32(from: &[u16], to: &mut [f32]) {
    from.iter().zip(to).for_each(|(f, t)| *t = bf16::from_bits(*f).to_f32());
}

pub fn f32_to_bf16(from: &[f32], to: &mut [u16]) {
    from.iter().zip(to).for_each(|(f, t)| *t = bf16::from_f32(*f).to_bits());
}

pub fn i8_to_f32(from: &[i8], to: &mut [f32]) {
    from.iter().zip(to).for_each(|(f, t)| *t = f32::from(*f));
}
