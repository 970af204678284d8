//! The rules of a channel whose slots are the tiles of a matrix, `into = c`.

use crate::errors::Errors;
use crate::model::{Binding, Channel, Holds, Kernel};

/// Checks that there is such a matrix, that its receivers own it, and that slots are its tiles.
pub fn check(index: usize, channel: &Channel, kernel: &Kernel, errors: &Errors) {
    let Some(into) = &channel.into else { return };
    let name = &channel.name;
    let Some((argument, matrix)) = kernel.matrix(into) else {
        return errors.at(into, format!("`{name}` lies in a matrix, and no argument `{into}` is one"));
    };
    let Holds::Tile { element, .. } = &channel.holds else {
        return errors.at(into, "a channel that lies in a matrix holds tiles: `struct Name(Tile<T, BM, BN>);`");
    };
    if *element != matrix.element {
        errors.at(channel.holds.written(), format!("the tiles of `{name}` lie in `{into}`, whose elements are others"));
    }
    let (axes, coordinates) = if matrix.sharded {
        (3, "the rank that owns the rows, the tile's row and its column")
    } else {
        (2, "the tile's row and its column")
    };
    if channel.slots.len() != axes {
        errors.at(
            into,
            format!(
                "a slot of `{name}` is a tile of `{into}`: it has {axes} coordinates, {coordinates}, not {}",
                channel.slots.len()
            ),
        );
    }
    for (receiver, marker) in kernel.receivers(index) {
        let owns = kernel.stages[receiver].parameters.iter().any(|parameter| match parameter.binding {
            Binding::Matrix { argument: found, mutable } => mutable && found == argument,
            _ => false,
        });
        if !owns {
            errors.at(
                marker,
                format!("what arrives on `{name}` arrives in `{into}`: its receiver takes `{into}: &mut …`, too"),
            );
        }
    }
}
