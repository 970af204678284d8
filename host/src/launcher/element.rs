//! The element types of tensors.

use bytemuck::Pod;
use entwine_device::{bf16, f16};

use crate::spec::{ElementSpec, ElementType};

/// A type that tensors can hold.
pub trait TensorElement: Pod + Send + Sync {
    /// The type, as a value.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($element:ty: $kind:ident),+) => {
        $(impl TensorElement for $element {
            const TYPE: ElementType = ElementType::$kind;
        })+
    };
}
elements!(bf16: Bf16, f16: F16, f32: F32, u32: U32, i32: I32, u64: U64, i64: I64);

impl ElementType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            ElementType::Bf16 | ElementType::F16 => 2,
            ElementType::F32 | ElementType::U32 | ElementType::I32 => 4,
            ElementType::U64 | ElementType::I64 => 8,
        }
    }

    /// The type's name in Rust.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::Bf16 => "bf16",
            ElementType::F16 => "f16",
            ElementType::F32 => "f32",
            ElementType::U32 => "u32",
            ElementType::I32 => "i32",
            ElementType::U64 => "u64",
            ElementType::I64 => "i64",
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
