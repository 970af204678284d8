//! The rules of kernels whose threads have one role, and of what they alone may do.

use crate::errors::Errors;
use crate::model::{ArgumentKind, Binding, Holds, Kernel, Stage};
use crate::products;

/// The columns of tiles that threads of the one role can hold their parts of.
const COLUMNS: [u32; 2] = [64, 128];

/// Checks that what one role needs has one, and that it does without what it lacks.
pub fn check(kernel: &Kernel, errors: &Errors) {
    if !kernel.together {
        return kernel.stages.iter().for_each(|stage| nothing_is_symmetric(kernel, stage, errors));
    }
    if kernel.tiles.iter().any(|(_, columns)| !COLUMNS.contains(columns)) {
        let message =
            "a tile has 64 or 128 columns where threads have one role, so that they can hold it: `tiles = [(64, 128)]`";
        errors.at(&kernel.name, message);
    }
    for channel in kernel.channels.iter().filter(|channel| matches!(channel.holds, Holds::Routing { .. })) {
        errors.at(&channel.name, "threads that have one role route no rows: leave `roles = one` out");
    }
    for stage in &kernel.stages {
        for call in products::calls(stage) {
            let message = "threads that have one role multiply no matrices: leave `roles = one` out, or multiply in a \
                           kernel of its own";
            errors.at(&call.func, message);
        }
        if stage.moved {
            errors.at(stage.name(), "where threads have one role there is no mover: leave `carrier = mover` out");
        }
    }
}

fn nothing_is_symmetric(kernel: &Kernel, stage: &Stage, errors: &Errors) {
    for parameter in &stage.parameters {
        let Binding::Matrix { argument, .. } = parameter.binding else { continue };
        if let ArgumentKind::Matrix(matrix) = &kernel.arguments[argument].kind
            && matrix.symmetric
        {
            errors.at(
                &parameter.written,
                "a symmetric matrix is for kernels whose threads have one role: `#[entwine::kernel(roles = one)]`",
            );
        }
    }
}
