//! The element types of tensors.

use bytemuck::Pod;
use entwine_device::{bf16, f16};

use crate::spec::{ElementSpec, ElementType};

/// A type that tensors can hold.
pub trait TensorElement: Pod + Send + Sync {
    /// The type, as a value.
    const TYPE: ElementType;
}

impl TensorElement for bf16 {
    const TYPE: ElementType = ElementType::Bf16;
}
impl TensorElement for f16 {
    const TYPE: ElementType = ElementType::F16;
}
impl TensorElement for f32 {
    const TYPE: ElementType = ElementType::F32;
}

impl TensorElement for u32 {
    const TYPE: ElementType = ElementType::U32;
}

impl ElementType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            ElementType::Bf16 | ElementType::F16 => 2,
            ElementType::F32 | ElementType::U32 => 4,
        }
    }

    /// The type's name in Rust.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::Bf16 => "bf16",
            ElementType::F16 => "f16",
            ElementType::F32 => "f32",
            ElementType::U32 => "u32",
        }
    }
}

impl ElementSpec {
    /// The type in a variant whose element type is `variant`.
    pub(crate) fn resolve(self, variant: ElementType) -> ElementType {
        match self {
            ElementSpec::Variant => variant,
            ElementSpec::Fixed(element) => element,
        }
    }
}
