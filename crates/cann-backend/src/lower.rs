//! Lowering as data: what a plan function writes and `acl/program.rs` turns into ACL calls.
//!
//! Nothing here has an address. Memory is named ([`Mem`]), shapes and strides stay in ggml's order (fastest first, bytes), and
//! `acl/tensor.rs` turns them round. No ACL call is made here.

use std::ffi::CStr;

use acl_sys::{AclOp, aclDataType, aclFormat};
use gguf::GgmlType;

use crate::caps::DeviceCaps;
use crate::graph::NodeId;

/// Memory by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mem {
    /// The memory a node owns: a graph input, a device tensor, or the result of an operator.
    Node(NodeId),
    /// Scratch of this plan, by index into [`Lowering::temps`].
    Temp(usize),
    /// Bytes uploaded once when the plan is prepared, by index into [`Lowering::constants`].
    Const(usize),
    /// f32 values, packed, of a leaf that is kept in ggml blocks: dequantised by the host.
    Dequant(NodeId),
}

/// A strided tensor over named memory. `ne` and `nb` are ggml's: fastest first, strides in bytes; 1 to 8 dimensions.
/// For `ACL_INT4` strides are in half bytes, because an element is one.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorArg {
    pub mem: Mem,
    pub offset: u64,
    pub dtype: aclDataType,
    pub ne: Vec<i64>,
    pub nb: Vec<i64>,
    pub format: aclFormat,
}

/// A scalar argument, in the dtype the operator is to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarArg {
    F32(f32),
    I64(i64),
}

/// One argument of an operator's first phase, in the order of `acl_sys`'s list.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Tensor(TensorArg),
    /// A null where the operator takes an optional tensor.
    NoTensor,
    Tensors(Vec<TensorArg>),
    NoTensors,
    Scalar(ScalarArg),
    Ints(Vec<i64>),
    NoInts,
    I64(i64),
    I32(i32),
    I8(i8),
    F64(f64),
    Bool(bool),
    DType(aclDataType),
    Str(&'static CStr),
}

impl From<TensorArg> for Arg {
    fn from(t: TensorArg) -> Arg {
        Arg::Tensor(t)
    }
}

/// A range of named memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub mem: Mem,
    pub offset: u64,
    pub bytes: u64,
}

/// One thing for the stream to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Call {
        op: AclOp,
        args: Vec<Arg>,
    },
    /// Device-to-device copy of `src.bytes` bytes; both spans have the same length.
    Copy {
        dst: Span,
        src: Span,
    },
    Fill {
        dst: Span,
        byte: u8,
    },
    /// Packed f32 values to packed blocks of `ty`, by the host: for types that no operator writes. The stream waits for it, and a
    /// plan that has one is not captured.
    Quantize {
        dst: Span,
        src: Span,
        ty: GgmlType,
    },
}

/// Scratch that a lowering asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Temp {
    pub bytes: u64,
    /// Node indices (positions in the plan) between which the content matters, both included.
    pub first: usize,
    pub last: usize,
}

/// Calls of one node. Extents decide how many some operators take, and a graph may name extents that no memory holds.
const MOST_STEPS: usize = 1 << 16;

/// The steps of a whole plan, node after node, with the memory they name.
#[derive(Clone, Debug, Default)]
pub struct Lowering {
    pub steps: Vec<Step>,
    /// `node_steps[i]` is the range of `steps` that belongs to the plan's i-th node.
    pub node_steps: Vec<std::ops::Range<usize>>,
    /// One remark per node for `plan.report()`: conversions, shared constants.
    pub notes: Vec<Option<String>>,
    pub temps: Vec<Temp>,
    pub constants: Vec<Vec<u8>>,
    /// Nobody wants the arguments: the question was which calls there are. With them, as many as a node may have take 100 MB.
    pub(crate) names_only: bool,
    /// Values that several nodes share (rotary tables, ALiBi slopes): key and where they are.
    pub(crate) shared: Vec<(String, Mem)>,
}

/// Why a device does not take a node. The reason is for people: types, shapes, chip rule or missing function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns early from a plan function: `refuse!("reason {}", detail)`.
#[macro_export]
macro_rules! refuse {
    ($($t:tt)*) => { return Err($crate::lower::Unsupported(format!($($t)*))) };
}

/// What a plan function writes to: the steps of one node.
pub struct Lower<'a> {
    pub caps: &'a DeviceCaps,
    pub out: &'a mut Lowering,
    /// Position of the node in the plan, for lifetimes.
    pub position: usize,
}

impl Lower<'_> {
    /// Appends an operator call; refuses when the library lacks it.
    pub fn call(&mut self, op: AclOp, args: impl IntoIterator<Item = Arg>) -> Result<(), Unsupported> {
        if !self.caps.api.has_op(op) {
            refuse!("the library has no {}", op.name());
        }
        let start = self.out.node_steps.last().map_or(0, |steps| steps.end);
        if self.out.steps.len() - start >= MOST_STEPS {
            refuse!("more than {MOST_STEPS} calls");
        }
        let args = if self.out.names_only { Vec::new() } else { args.into_iter().collect() };
        self.out.steps.push(Step::Call { op, args });
        Ok(())
    }

    pub fn copy(&mut self, dst: Span, src: Span) {
        debug_assert_eq!(dst.bytes, src.bytes);
        self.out.steps.push(Step::Copy { dst, src });
    }

    pub fn fill(&mut self, dst: Span, byte: u8) {
        self.out.steps.push(Step::Fill { dst, byte });
    }

    /// `dst`, whole blocks of `ty`, from f32 values, by the host.
    pub fn quantize(&mut self, dst: Span, src: Span, ty: GgmlType) {
        self.out.steps.push(Step::Quantize { dst, src, ty });
    }

    /// Scratch that lives while this node's steps run. Its content is undefined at first.
    pub fn temp(&mut self, bytes: u64) -> Mem {
        self.out.temps.push(Temp { bytes, first: self.position, last: self.position });
        Mem::Temp(self.out.temps.len() - 1)
    }

    /// Bytes the plan uploads once; equal contents are stored once.
    pub fn constant(&mut self, bytes: Vec<u8>) -> Mem {
        let at = self.out.constants.iter().position(|c| *c == bytes).unwrap_or_else(|| {
            self.out.constants.push(bytes);
            self.out.constants.len() - 1
        });
        Mem::Const(at)
    }

    /// Scratch computed by the first node that asks for `key` and kept until the last that does. `build` writes the steps that
    /// fill it. A key must name everything the content depends on.
    pub fn shared(
        &mut self,
        key: String,
        bytes: u64,
        build: impl FnOnce(&mut Self, Mem) -> Result<(), Unsupported>,
    ) -> Result<Mem, Unsupported> {
        if let Some((_, mem)) = self.out.shared.iter().find(|(k, _)| *k == key) {
            let mem = *mem;
            if let Mem::Temp(i) = mem {
                self.out.temps[i].last = self.position;
            }
            return Ok(mem);
        }
        let mem = self.temp(bytes);
        build(self, mem)?;
        self.out.shared.push((key, mem));
        Ok(mem)
    }

    /// A remark on this node for `plan.report()`.
    pub fn note(&mut self, text: impl Into<String>) {
        if let Some(slot) = self.out.notes.get_mut(self.position) {
            *slot = Some(text.into());
        }
    }
}
