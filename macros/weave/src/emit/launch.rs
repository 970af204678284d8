//! The typed face for hosts: `Args`, `load` and `protocol`.

use proc_macro2::TokenStream;
use quote::quote;

use super::docs;
use super::variant::element_type;
use crate::model::{Argument, ArgumentKind, Element, Kernel};

/// The launcher's items.
pub fn launcher(kernel: &Kernel) -> TokenStream {
    let name = kernel.name.to_string();
    let args = args(kernel);
    let load = format!(
        "Makes `{name}` ready to be launched in `world`: checks that it can run there, and sets up its channels."
    );
    let protocol = format!("The protocol that is woven into `{name}`: its stages, and the channels between them.");
    quote! {
        #args

        /// The kernel, as a type.
        #[doc(hidden)]
        #[cfg(not(target_arch = "nvptx64"))]
        #[derive(Debug)]
        pub struct Woven;
        #[cfg(not(target_arch = "nvptx64"))]
        impl ::entwine::KernelType for Woven {
            const SPEC: &'static ::entwine::spec::KernelSpec = &SPEC;
        }

        #[doc = #load]
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        pub fn load(world: &::entwine::World) -> ::core::result::Result<::entwine::Kernel<Woven>, ::entwine::Error> {
            ::entwine::Kernel::load(world)
        }

        #[doc = #protocol]
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        pub fn protocol() -> ::entwine::Protocol {
            ::entwine::Protocol::of(&SPEC)
        }
    }
}

/// `Args`, generic over the lifetime and the element type as far as its fields are.
fn args(kernel: &Kernel) -> TokenStream {
    let borrows = kernel.matrices().next().is_some().then(|| quote!('a,));
    let generic = kernel.generic_arguments();
    let default = kernel.elements.first().copied().map(element_type);
    let parameter = generic.then(|| quote!(T = #default));
    let bound = generic.then(|| quote!(T: ::entwine::TensorElement));
    let applied = generic.then(|| quote!(T));
    let element = if generic {
        quote!(::core::option::Option::Some(<T as ::entwine::TensorElement>::TYPE))
    } else {
        quote!(::core::option::Option::None)
    };
    let documentation = format!("The arguments of a launch of `{}`.", kernel.name);
    let fields = kernel.arguments.iter().map(field);
    let seen = kernel.arguments.iter().map(seen);
    let values = kernel.arguments.iter().map(value);
    quote! {
        #[doc = #documentation]
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        pub struct Args<#borrows #parameter> {
            #(#fields,)*
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl<'a, #bound> ::entwine::Arguments<'a> for Args<#borrows #applied> {
            type Kernel = Woven;

            fn element() -> ::core::option::Option<::entwine::spec::ElementType> {
                #element
            }

            fn values(&self) -> ::entwine::__private::Vec<::entwine::ArgumentValue<'_>> {
                ::core::convert::From::from([#(#seen),*])
            }

            fn into_values(self) -> ::entwine::__private::Vec<::entwine::ArgumentValue<'a>> {
                ::core::convert::From::from([#(#values),*])
            }
        }
    }
}

fn field(argument: &Argument) -> TokenStream {
    let Argument { attributes, name, kind } = argument;
    let documentation = docs::argument(argument);
    let ty = match kind {
        ArgumentKind::Matrix(matrix) => {
            let element = match matrix.element {
                Element::Variant => quote!(T),
                Element::Fixed(element) => element_type(element),
            };
            let reference = if matrix.mutable { quote!(&'a mut) } else { quote!(&'a) };
            quote!(#reference ::entwine::Tensor<#element>)
        }
        ArgumentKind::Scalar(scalar) => quote!(#scalar),
    };
    quote! {
        #(#attributes)*
        #documentation
        pub #name: #ty
    }
}

/// An argument to be looked at.
fn seen(argument: &Argument) -> TokenStream {
    let name = &argument.name;
    match &argument.kind {
        ArgumentKind::Matrix(_) => quote!(::entwine::ArgumentValue::Matrix(&*self.#name)),
        ArgumentKind::Scalar(_) => value(argument),
    }
}

fn value(argument: &Argument) -> TokenStream {
    let name = &argument.name;
    match &argument.kind {
        ArgumentKind::Matrix(matrix) if matrix.mutable => quote!(::entwine::ArgumentValue::MatrixMut(self.#name)),
        ArgumentKind::Matrix(_) => quote!(::entwine::ArgumentValue::Matrix(self.#name)),
        ArgumentKind::Scalar(_) => {
            quote!(::entwine::ArgumentValue::Scalar(::entwine::device::abi::Scalar::to_word(self.#name)))
        }
    }
}
