//! The matrix products that a tile function shows, for those who estimate its time.

use proc_macro2::Ident;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall};

use crate::extent::Extent;
use crate::model::{ArgumentKind, Binding, Holds, Kernel, Stage};

/// The inner extent of each call of `matmul` in the stage's function: the columns of an operand that is written there, or
/// else of the first matrix that the stage reads. What is called in other functions is not seen.
pub fn inner_extents<'a>(kernel: &'a Kernel, stage: &'a Stage) -> Vec<&'a Extent> {
    let read = stage.parameters.iter().find_map(|parameter| match parameter.binding {
        Binding::Matrix { argument, mutable: false } => columns(kernel, argument),
        _ => None,
    });
    let inner = |call: &ExprCall| call.args.iter().find_map(|operand| written(kernel, stage, operand)).or(read);
    calls(stage).into_iter().filter_map(inner).collect()
}

/// The calls of `matmul` in the stage's function.
pub fn calls(stage: &Stage) -> Vec<&ExprCall> {
    let mut calls = Calls(Vec::new());
    calls.visit_block(&stage.function.block);
    calls.0
}

struct Calls<'a>(Vec<&'a ExprCall>);

impl<'a> Visit<'a> for Calls<'a> {
    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if let Expr::Path(function) = &*call.func
            && function.path.segments.last().is_some_and(|last| last.ident == "matmul")
        {
            self.0.push(call);
        }
        visit::visit_expr_call(self, call);
    }
}

/// The columns of a panel that is written as calls of methods on a parameter.
fn written<'a>(kernel: &'a Kernel, stage: &'a Stage, operand: &Expr) -> Option<&'a Extent> {
    let name = root(operand)?;
    let parameter = stage.parameters.iter().find(|parameter| parameter.name == *name)?;
    match &parameter.binding {
        Binding::Matrix { argument, .. } => columns(kernel, *argument),
        Binding::Port(port) => match &kernel.channels[port.channel].holds {
            Holds::Panel { columns, .. } => Some(columns),
            _ => None,
        },
        Binding::Scalar { .. } => None,
    }
}

/// The name that a chain of calls of methods starts from.
fn root(mut expr: &Expr) -> Option<&Ident> {
    loop {
        expr = match expr {
            Expr::MethodCall(call) => &call.receiver,
            Expr::Paren(inner) => &inner.expr,
            Expr::Path(path) => return path.path.get_ident(),
            _ => return None,
        };
    }
}

fn columns(kernel: &Kernel, argument: usize) -> Option<&Extent> {
    match &kernel.arguments[argument].kind {
        ArgumentKind::Matrix(matrix) => Some(&matrix.columns),
        ArgumentKind::Scalar(_) => None,
    }
}
