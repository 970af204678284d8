//! Launch arguments: what the generated `Args` hands over, checked against the kernel's signature.

use std::sync::Arc;

use crate::error::Error;
use crate::spec::{ArgumentKind, ArgumentSpec, ElementType, KernelSpec};
use crate::tensor::{AnyTensor, Matrices, RankMatrix};
use crate::world::World;

/// A kernel, as a type. Implemented by `#[entwine::kernel]`.
pub trait KernelType: 'static {
    /// What the kernel is.
    const SPEC: &'static KernelSpec;
}

/// The arguments of a launch. Implemented for the generated `Args` by `#[entwine::kernel]`.
pub trait Arguments<'a> {
    /// The kernel that takes them.
    type Kernel: KernelType;

    /// The kernel's element type `T`, if it has one.
    fn element() -> Option<ElementType>;

    /// The arguments, in the order of [`KernelSpec::arguments`], to be looked at.
    fn values(&self) -> Vec<ArgumentValue<'_>>;

    /// The arguments, in the order of [`KernelSpec::arguments`].
    fn into_values(self) -> Vec<ArgumentValue<'a>>;
}

/// One argument of a launch.
pub enum ArgumentValue<'a> {
    /// A matrix that is read.
    Matrix(&'a dyn AnyTensor),
    /// A matrix that is written.
    MatrixMut(&'a mut dyn AnyTensor),
    /// A scalar, in the low bytes.
    Scalar(u64),
}

/// A matrix argument with what the signature says about it.
#[derive(Clone)]
pub(crate) struct BoundMatrix {
    /// The argument's specification.
    pub spec: &'static ArgumentSpec,
    /// Each rank's matrix.
    pub ranks: Vec<Arc<RankMatrix>>,
}

/// Arguments whose kinds, worlds and element types are right; their shapes are checked later, against dimensions.
#[derive(Clone)]
pub(crate) struct Bound {
    /// The matrices, in the order of the signature.
    pub matrices: Vec<BoundMatrix>,
    /// The scalars, in the order of the signature.
    pub scalars: Vec<u64>,
}

impl Bound {
    /// Checks a launch's arguments against the kernel's signature.
    pub fn check(
        kernel: &'static KernelSpec,
        world: &World,
        element: ElementType,
        values: Vec<ArgumentValue<'_>>,
    ) -> Result<Self, Error> {
        assert_eq!(values.len(), kernel.arguments.len(), "`Args` has one value for each argument");
        let mut bound = Bound { matrices: Vec::new(), scalars: Vec::new() };
        for (spec, value) in kernel.arguments.iter().zip(&values) {
            match (&spec.kind, value.matrices()) {
                (ArgumentKind::Matrix { element: wanted, .. }, Some(tensor)) => {
                    let refuse = |problem| Error::Argument { kernel: kernel.name, argument: spec.name, problem };
                    if tensor.world != *world {
                        return Err(refuse(
                            "the tensor belongs to another world than the kernel was loaded for".into(),
                        ));
                    }
                    let wanted = wanted.resolve(element);
                    if tensor.element != wanted {
                        let found = tensor.element.name();
                        return Err(refuse(format!("expected elements of {}, found {found}", wanted.name())));
                    }
                    bound.matrices.push(BoundMatrix { spec, ranks: tensor.ranks.clone() });
                }
                (ArgumentKind::Scalar(_), None) => bound.scalars.push(value.scalar()),
                _ => panic!("`Args` has a value of the wrong kind for argument `{}`", spec.name),
            }
        }
        Ok(bound)
    }
}

impl ArgumentValue<'_> {
    fn matrices(&self) -> Option<&Matrices> {
        match self {
            ArgumentValue::Matrix(tensor) => Some(tensor.matrices()),
            ArgumentValue::MatrixMut(tensor) => Some(tensor.matrices()),
            ArgumentValue::Scalar(_) => None,
        }
    }

    fn scalar(&self) -> u64 {
        match self {
            ArgumentValue::Scalar(word) => *word,
            _ => unreachable!("a matrix is no scalar"),
        }
    }
}
