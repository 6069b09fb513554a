//! Triangular systems.

use crate::tensor::Tensor;

refused! {
    aclnnTriangularSolve(self_: &Tensor, a: &Tensor, upper: bool, transpose: bool, unitriangular: bool, x_out: &Tensor, m_out: &Tensor);
}
