//! The operators, one plain function each: it checks its arguments and answers with an [`Op`](crate::executor::Op), whose
//! closure computes. The list of operators is `acl_sys::acl_functions!`; [`crate::ffi::ops`] makes the C functions of it and
//! finds the operators here by name.

#![allow(non_snake_case, clippy::too_many_arguments)]

pub(crate) mod check;
pub(crate) mod elementwise;
pub(crate) mod transfer;

mod attention;
mod binary;
mod compare;
mod conv;
mod copy;
mod glu;
mod grouped;
mod index;
mod loss;
mod matmul;
mod norm;
mod pool;
mod quant_matmul;
mod reduce;
mod resize;
mod rope;
mod scalar;
mod softmax;
mod solve;
mod sort;
mod unary;

pub(crate) use attention::*;
pub(crate) use binary::*;
pub(crate) use compare::*;
pub(crate) use conv::*;
pub(crate) use copy::*;
pub(crate) use glu::*;
pub(crate) use grouped::*;
pub(crate) use index::*;
pub(crate) use loss::*;
pub(crate) use matmul::*;
pub(crate) use norm::*;
pub(crate) use pool::*;
pub(crate) use quant_matmul::*;
pub(crate) use reduce::*;
pub(crate) use resize::*;
pub(crate) use rope::*;
pub(crate) use scalar::*;
pub(crate) use softmax::*;
pub(crate) use solve::*;
pub(crate) use sort::*;
pub(crate) use unary::*;
