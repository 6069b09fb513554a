//! The vector of floats of this architecture and its operations under names of our own, so that a family's vector code is
//! written once: `F32s` of `LANES` floats, `Mask` from comparisons, loads and stores of each number type. The functions want the
//! processor features that `vectorised!` enables, so only code inside that macro calls them.

/// Functions compiled for the features behind the operations: AVX2, FMA and F16C, or NEON.
macro_rules! vectorised {
    ($($item:item)*) => {$(
        #[inline]
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
        #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
        $item
    )*};
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub use avx2::*;
#[cfg(target_arch = "aarch64")]
pub use neon::*;
