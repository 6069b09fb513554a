//! ggml blocks and the device's layout of them.
//!
//! Operators want the quants of a whole tensor side by side and the scales after them; files and users want ggml's blocks,
//! each with its scale. This module knows both and nothing else: where the parts of a tensor lie ([`Regions`]), which of
//! them a range of ggml bytes touches ([`touched`]), and the two directions over whole blocks ([`to_device`],
//! [`from_device`]). What a file's type becomes is in [`convert`]. Absent: device memory, files, threads.

use std::ops::Range;

use gguf::GgmlType;

mod blocks;
pub mod convert;

pub use blocks::{from_device, to_device};

/// How the bytes of a tensor lie on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// As in ggml.
    Plain,
    /// All int8 quants of the whole tensor in element order, then one f16 scale per 32 elements.
    Q8_0,
    /// All signed int4 quants, two a byte, even element in the low nibble; then one f16 scale per 32 elements.
    Q4_0,
    /// As `Q4_0`, then one f16 offset per 32 elements: value = (q + offset) * scale. Holds q4_1 and what was converted to it.
    Int4Affine,
    /// ggml blocks, unchanged: whole-block reads, writes and copies only; operators see dequantised values.
    Blocks,
}

/// Elements that share a scale in every layout that has scales.
pub const GROUP: u64 = 32;

impl Layout {
    /// The layout that operators use for a type: a tensor of this type has it unless its maker says otherwise.
    pub fn native(ty: GgmlType) -> Layout {
        match ty {
            GgmlType::Q8_0 => Layout::Q8_0,
            GgmlType::Q4_0 => Layout::Q4_0,
            GgmlType::Q4_1 => Layout::Int4Affine,
            _ if ty.is_quantized() => Layout::Blocks,
            _ => Layout::Plain,
        }
    }

    /// Whether a tensor of type `ty` can have this layout.
    pub fn holds(self, ty: GgmlType) -> bool {
        match self {
            Layout::Plain => !ty.is_quantized(),
            Layout::Blocks => ty.is_quantized(),
            _ => self == Layout::native(ty),
        }
    }

    /// Bytes of `elements` elements on the device; `None` when they are not whole blocks, the layout does not hold the type,
    /// or the size overflows. Every layout takes exactly the bytes of ggml's blocks.
    pub fn device_bytes(self, ty: GgmlType, elements: u64) -> Option<u64> {
        if self.holds(ty) { ty.row_bytes(elements) } else { None }
    }

    /// Whether the device keeps the bytes as they are, so that any range of them can be read and written.
    pub fn is_verbatim(self) -> bool {
        matches!(self, Layout::Plain | Layout::Blocks)
    }

    /// Whether a write must consist of whole blocks. `Int4Affine` rounds the minimum of a block when it is stored, so a block
    /// written piece by piece would not be the block written at once.
    pub fn writes_whole_blocks(self) -> bool {
        self == Layout::Int4Affine
    }

    /// Bytes of one block's quants, scale and offset, in the layouts that part them.
    fn parts(self) -> Option<[u64; 3]> {
        match self {
            Layout::Plain | Layout::Blocks => None,
            Layout::Q8_0 => Some([32, 2, 0]),
            Layout::Q4_0 => Some([16, 2, 0]),
            Layout::Int4Affine => Some([16, 2, 2]),
        }
    }
}

/// Where the parts of a whole tensor lie, in bytes from its start on the device. Verbatim layouts have `quants` only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    pub quants: Range<u64>,
    pub scales: Range<u64>,
    pub offsets: Range<u64>,
}

impl Regions {
    /// `None` exactly when [`Layout::device_bytes`] is.
    pub fn new(layout: Layout, ty: GgmlType, elements: u64) -> Option<Regions> {
        let bytes = layout.device_bytes(ty, elements)?;
        let Some([quants, scales, _]) = layout.parts() else {
            return Some(Regions { quants: 0..bytes, scales: bytes..bytes, offsets: bytes..bytes });
        };
        // Parts of a size that was checked.
        let blocks = elements / GROUP;
        let (first, second) = (blocks * quants, blocks * (quants + scales));
        Some(Regions { quants: 0..first, scales: first..second, offsets: second..bytes })
    }
}

/// The blocks that a range of ggml bytes touches, and where they lie on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Blocks by position in the tensor. Bytes count as blocks of one in verbatim layouts.
    pub blocks: Range<u64>,
    /// Where the range lies in the ggml bytes of those blocks.
    pub within: Range<u64>,
    /// Whether it is all of them: then nothing has to be read back before it is written.
    pub whole: bool,
    /// Device bytes of their quants (or the bytes themselves), scales and offsets; `None` for parts that the layout lacks
    /// and when the range is empty.
    pub parts: [Option<Range<u64>>; 3],
}

impl Touched {
    /// ggml bytes of the touched blocks.
    pub fn ggml_bytes(&self, layout: Layout, ty: GgmlType) -> u64 {
        let block_bytes = if layout.is_verbatim() { 1 } else { ty.block_bytes() as u64 };
        (self.blocks.end - self.blocks.start) * block_bytes
    }
}

/// What the range `bytes` of a tensor's ggml layout touches. `None` when it does not lie in the tensor, or the layout can't
/// hold it.
pub fn touched(layout: Layout, ty: GgmlType, elements: u64, bytes: Range<u64>) -> Option<Touched> {
    let regions = Regions::new(layout, ty, elements)?;
    if bytes.start > bytes.end || bytes.end > regions.offsets.end {
        return None;
    }
    let length = bytes.end - bytes.start;
    let some = |range: Range<u64>| (!range.is_empty()).then_some(range);
    let Some(sizes) = layout.parts() else {
        return Some(Touched {
            within: 0..length,
            whole: true,
            parts: [some(bytes.clone()), None, None],
            blocks: bytes,
        });
    };
    let block_bytes = ty.block_bytes() as u64;
    let first = bytes.start / block_bytes;
    let end = if length == 0 { first } else { bytes.end.div_ceil(block_bytes) };
    let skipped = if length == 0 { 0 } else { bytes.start - first * block_bytes };
    let within = skipped..skipped + length;
    let whole = within == (0..(end - first) * block_bytes);
    let starts = [regions.quants.start, regions.scales.start, regions.offsets.start];
    let part = |k: usize| some(starts[k] + first * sizes[k]..starts[k] + end * sizes[k]);
    Some(Touched { blocks: first..end, within, whole, parts: [part(0), part(1), part(2)] })
}

/// A scale or minimum is infinite, NaN, or too large for the layout. Whoever chose the layout has to choose another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block} has no finite scale and offset in this layout")]
pub struct NotFinite {
    /// Position in the blocks that were given, in groups of 32 elements.
    pub block: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_layout_of_its_size() {
        for &ty in GgmlType::ALL {
            let layout = Layout::native(ty);
            assert!(layout.holds(ty));
            assert_eq!(layout.device_bytes(ty, 512), ty.row_bytes(512));
            assert_eq!(
                layout.device_bytes(ty, u64::MAX / 256 * 256).is_some(),
                ty.row_bytes(u64::MAX / 256 * 256).is_some()
            );
        }
        assert_eq!(Layout::Q8_0.device_bytes(GgmlType::Q4_0, 32), None);
        assert_eq!(Layout::Q8_0.device_bytes(GgmlType::Q8_0, 33), None);
    }

    #[test]
    fn regions_follow_each_other() {
        let regions = Regions::new(Layout::Int4Affine, GgmlType::Q4_1, 96).unwrap();
        assert_eq!(regions, Regions { quants: 0..48, scales: 48..54, offsets: 54..60 });
        let regions = Regions::new(Layout::Q8_0, GgmlType::Q8_0, 64).unwrap();
        assert_eq!(regions, Regions { quants: 0..64, scales: 64..68, offsets: 68..68 });
    }

    #[test]
    fn ranges_touch_whole_blocks() {
        let touch = |bytes| touched(Layout::Q4_0, GgmlType::Q4_0, 96, bytes);
        let middle = touch(17..19).unwrap();
        assert_eq!((middle.blocks, middle.within, middle.whole), (0..2, 17..19, false));
        assert_eq!(middle.parts, [Some(0..32), Some(48..52), None]);
        let second = touch(18..36).unwrap();
        assert_eq!((second.blocks, second.within, second.whole), (1..2, 0..18, true));
        assert_eq!(second.parts, [Some(16..32), Some(50..52), None]);
        let none = touch(20..20).unwrap();
        assert_eq!((none.blocks, none.within, none.whole, none.parts), (1..1, 0..0, true, [None, None, None]));
        assert_eq!(touch(0..55), None);
        let plain = touched(Layout::Plain, GgmlType::F32, 4, 3..9).unwrap();
        assert_eq!((plain.within, plain.whole, plain.parts), (0..6, true, [Some(3..9), None, None]));
    }
}
