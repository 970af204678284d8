//! The walk over a kernel's stages, which every role makes in step with the others.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::literal;
use crate::extent::Extent;
use crate::model::{
    ArgumentKind, Binding, Holds, Kernel, Order, OrderKind, Parameter, Port, Receive, RoutingSize, Stage,
};
use crate::roles;

/// The function `weave`, which visits the tiles of all stages, in order. Where movers carry some of them beside the other
/// roles, these visit the rest in `weave_unmoved`, and the movers theirs in `weave_moves`.
pub fn weave(kernel: &Kernel) -> TokenStream {
    let all = function(kernel, quote!(weave), |_| true);
    if !moves(kernel) {
        return all;
    }
    let unmoved = function(kernel, quote!(weave_unmoved), |stage| !stage.moved);
    let moved = function(kernel, quote!(weave_moves), |stage| stage.moved);
    quote! {
        #all
        #[cfg(target_arch = "nvptx64")]
        #unmoved
        #[cfg(target_arch = "nvptx64")]
        #moved
    }
}

/// Whether movers carry stages that move rows, for which they are a whole warp.
pub fn moves_rows(kernel: &Kernel) -> bool {
    kernel.stages.iter().any(|stage| stage.moved && routings(kernel, stage).next().is_some())
}

/// The routings that a stage goes by, with the parameters' names.
fn routings<'a>(kernel: &'a Kernel, stage: &'a Stage) -> impl Iterator<Item = (&'a Ident, usize, &'a RoutingSize)> {
    stage.ports().filter_map(|(name, port)| match &kernel.channels[port.channel].holds {
        Holds::Routing { size, .. } => Some((name, port.channel, size)),
        _ => None,
    })
}

/// Whether the stage arranges a routing, whose work several CTAs share out.
fn arranges(kernel: &Kernel, stage: &Stage) -> bool {
    let sends = |channel: usize| stage.port(channel).is_some_and(|port| port.send.is_some());
    routings(kernel, stage).any(|(_, channel, _)| sends(channel))
}

/// Whether movers carry any of the stages.
pub fn moves(kernel: &Kernel) -> bool {
    kernel.stages.iter().any(|stage| stage.moved)
}

/// Whether panels arrive for the other roles, so that a poller looks for their signals.
pub fn polls(kernel: &Kernel) -> bool {
    let arrives =
        |port: &Port| port.receive.is_some() && matches!(kernel.channels[port.channel].holds, Holds::Panel { .. });
    let stages = kernel.stages.iter().filter(|stage| !stage.moved);
    stages.flat_map(Stage::ports).any(|(_, port)| arrives(port))
}

fn function(kernel: &Kernel, name: TokenStream, includes: impl Fn(&Stage) -> bool) -> TokenStream {
    let stages = || kernel.stages.iter().enumerate().filter(|(_, stage)| includes(stage));
    let dedicated = kernel.stages.iter().map(|stage| literal(stage.ctas.unwrap_or(0)));
    let mut dedicated = quote!([#(#dedicated),*]);
    if kernel.stages.iter().any(|stage| stage.ctas.is_some()) {
        dedicated = quote!(::entwine::device::dedicated(role.head(), #dedicated));
    }
    let is_beside = |index: usize| kernel.stages.get(index).is_some_and(|stage| stage.beside.is_some());
    let grids = || {
        stages().flat_map(|(_, stage)| {
            let sizes = routings(kernel, stage).flat_map(|(_, _, size)| size.extents());
            stage.grid.iter().chain(sizes)
        })
    };
    // Those who read what others lend: all, or the movers alone.
    let lends =
        kernel.lends() || kernel.matrices().any(|(_, matrix)| matrix.lent) && stages().any(|(_, stage)| stage.moved);
    let reclaim = lends.then(|| quote!(role.reclaim();));
    let world = grids().any(Extent::mentions_world).then(|| quote!(world,));
    let dims =
        kernel.dims.iter().map(|dim| if grids().any(|extent| extent.mentions(dim)) { quote!(#dim) } else { quote!(_) });
    let world_of = |extent: &Extent| match extent.mentions_world() {
        true => Some(format_ident!("world")),
        false => None,
    };
    let mentioned = kernel.dims.iter().filter(|dim| grids().any(|extent| extent.mentions(dim))).cloned();
    let sizes: Vec<_> = grids().find_map(world_of).into_iter().chain(mentioned).collect();
    let walks = stages().filter(|(index, _)| !is_beside(*index)).map(|(index, _)| match is_beside(index + 1) {
        true => walk_beside(kernel, index, &dedicated, &sizes),
        false => walk(kernel, index, &dedicated, &sizes),
    });
    let role = roles::role(kernel);
    quote! {
        #[inline(always)]
        pub fn #name<R: #role>(role: &R, params: &Params) {
            let ::entwine::device::abi::Head { #world ctas, dims: [#(#dims,)* ..], .. } = *role.head();
            #(#walks)*
            #reclaim
        }
    }
}

/// What a walk over a stage is made of.
struct Walk {
    /// Waits for the routings that the stage goes by.
    awaited: Vec<TokenStream>,
    /// Its `Stage`.
    described: TokenStream,
    /// Its order, as a function.
    order: TokenStream,
    /// The call of its tile function.
    tile: TokenStream,
}

impl Walk {
    fn of(kernel: &Kernel, index: usize, dedicated: &TokenStream) -> Self {
        let stage = &kernel.stages[index];
        let is_dealt = |index: &usize| !kernel.stages[*index].moved && !is_queued(kernel, *index);
        let from_end = is_dealt(&index) && (0..index).filter(is_dealt).count() % 2 == 1;
        let (name, index) = (stage.name(), literal(index));
        let received = routings(kernel, stage)
            .filter(|(_, channel, _)| stage.port(*channel).is_some_and(|port| port.receive.is_some()));
        let awaited = received.map(|(name, channel, size)| {
            let routing = routing_of(kernel, channel, size, quote!(Receive));
            let name = format_ident!("blocks_of_{name}");
            quote!(let #name = #routing.await_blocks();)
        });
        let grid = stage.grid.iter().enumerate().map(|(axis, extent)| match &stage.within {
            Some(routing) if axis == 0 => format_ident!("blocks_of_{routing}").into_token_stream(),
            _ => extent.in_kernel(),
        });
        let share = if stage.moved {
            quote!(::entwine::device::Share { first: 0, count: ctas })
        } else {
            quote!(::entwine::device::share(ctas, #dedicated, #index))
        };
        let arguments = stage.parameters.iter().map(|parameter| argument(kernel, parameter));
        let together = match routings(kernel, stage).next() {
            Some(_) => quote!(ROUTED_ROWS_TOGETHER),
            None => quote!(ROWS_TOGETHER),
        };
        let given = if arranges(kernel, stage) { quote!(at, member) } else { quote!(at) };
        let Order { kind, name: order } = &stage.order;
        Walk {
            awaited: awaited.collect(),
            described: quote! {
                ::entwine::device::Stage {
                    index: #index,
                    grid: [#(#grid),*],
                    share: #share,
                    from_end: #from_end,
                    rows_together: ::entwine::device::order::#together,
                }
            },
            order: match kind {
                OrderKind::Function => quote!(self::#order),
                _ => quote!(::entwine::device::order::#order),
            },
            // A dimension, which is a variable here, may have a function's name.
            tile: quote!(|#given| self::#name(at, #(#arguments),*)),
        }
    }

    /// The walk, after what it has to wait for. A name that the grid doesn't use is the wait's alone.
    ///
    /// Kernels with routings have many stages and no register to spare: what one stage computes from the sizes isn't kept for
    /// another.
    fn after_waits(awaited: &[TokenStream], sizes: &[Ident], walk: TokenStream) -> TokenStream {
        if awaited.is_empty() {
            return walk;
        }
        quote!({
            #[allow(unused_variables)]
            {
                #(let #sizes = ::entwine::device::anew(#sizes);)*
                #(#awaited)*
                #walk
            }
        })
    }
}

/// Whether the stage's tiles are taken from a queue, and not dealt.
fn is_queued(kernel: &Kernel, index: usize) -> bool {
    let has_beside = kernel.stages.get(index + 1).is_some_and(|stage| stage.beside.is_some());
    has_beside || kernel.stages[index].order.kind == OrderKind::ReadyFirst
}

fn walk(kernel: &Kernel, index: usize, dedicated: &TokenStream, sizes: &[Ident]) -> TokenStream {
    let (stage, Walk { awaited, described, order, tile }) = (&kernel.stages[index], Walk::of(kernel, index, dedicated));
    let walk = if arranges(kernel, stage) {
        quote!(::entwine::device::walk_as_members(role, #described, #tile);)
    } else if stage.order.kind == OrderKind::ReadyFirst {
        let slot = awaited_slot(kernel, stage);
        quote!(::entwine::device::walk_ready_first(role, #described, #slot, #tile);)
    } else {
        quote!(::entwine::device::walk(role, #described, #order, #tile);)
    };
    Walk::after_waits(&awaited, sizes, walk)
}

/// The walk over a stage and the one after it, which is beside it.
fn walk_beside(kernel: &Kernel, index: usize, dedicated: &TokenStream, sizes: &[Ident]) -> TokenStream {
    let (main, beside) = (Walk::of(kernel, index, dedicated), Walk::of(kernel, index + 1, dedicated));
    let Walk { described, order, tile, .. } = &main;
    let Walk { described: described_beside, order: order_beside, tile: tile_beside, .. } = &beside;
    let slot = awaited_slot(kernel, &kernel.stages[index + 1]);
    let walk = quote! {
        ::entwine::device::walk_beside(
            role,
            #described,
            #order,
            #tile,
            ::entwine::device::Course::new(role, #described_beside, #order_beside),
            #slot,
            #tile_beside,
        );
    };
    Walk::after_waits(&[main.awaited, beside.awaited].concat(), sizes, walk)
}

/// A routing, as a stage's parameter in this direction.
fn routing_of(kernel: &Kernel, channel: usize, size: &RoutingSize, direction: TokenStream) -> TokenStream {
    let (index, name) = (literal(channel), &kernel.channels[channel].name);
    let [rows, choices, groups, capacity] = size.extents().map(Extent::in_kernel);
    quote! {
        ::entwine::device::Routing::<#name, ::entwine::device::#direction, R>::woven(
            role,
            &params.channels[#index],
            ::entwine::device::RoutingSize {
                rows: #rows,
                choices: #choices,
                groups: #groups,
                capacity: #capacity,
                block_rows: BM as u32,
            },
        )
    }
}

/// What a tile function is given for a parameter.
fn argument(kernel: &Kernel, parameter: &Parameter) -> TokenStream {
    match &parameter.binding {
        Binding::Matrix { argument, mutable } => {
            let index = literal(kernel.index_among_kind(*argument));
            let reference = if *mutable { quote!(&mut) } else { quote!(&) };
            let kind = match &kernel.arguments[*argument].kind {
                ArgumentKind::Matrix(matrix) if matrix.sharded => quote!(Sharded),
                ArgumentKind::Matrix(matrix) if matrix.symmetric => {
                    return quote!(
                        #reference ::entwine::device::Symmetric::woven(role, &params.matrices[#index], #index)
                    );
                }
                ArgumentKind::Matrix(matrix) if matrix.groups.is_some() => quote!(Grouped),
                _ => quote!(Matrix),
            };
            quote!(#reference ::entwine::device::#kind::woven(role, &params.matrices[#index]))
        }
        Binding::Scalar { argument } => {
            let index = literal(kernel.index_among_kind(*argument));
            quote!(::entwine::device::abi::Scalar::from_word(params.scalars[#index]))
        }
        Binding::Port(port) => match &kernel.channels[port.channel].holds {
            Holds::Routing { size, .. } => {
                if port.send.is_some() {
                    let routing = routing_of(kernel, port.channel, size, quote!(Send));
                    quote!(#routing.by(member))
                } else {
                    routing_of(kernel, port.channel, size, quote!(Receive))
                }
            }
            _ => port_of(kernel, port.channel),
        },
    }
}

/// An end of a channel.
fn port_of(kernel: &Kernel, channel: usize) -> TokenStream {
    let index = literal(channel);
    match kernel.channels[channel].into.as_ref().and_then(|into| kernel.matrix(into)) {
        Some((argument, _)) => {
            let matrix = literal(kernel.index_among_kind(argument));
            quote!(::entwine::device::Port::woven_into(role, &params.channels[#index], &params.matrices[#matrix]))
        }
        None => quote!(::entwine::device::Port::woven(role, &params.channels[#index])),
    }
}

/// From a tile's coordinates to the place of the slot that it waits for.
fn awaited_slot(kernel: &Kernel, stage: &Stage) -> TokenStream {
    let awaited = stage.ports().find_map(|(_, port)| match &port.receive {
        Some(Receive { slot: Some(slot), unless, .. }) => Some((port.channel, slot, unless)),
        _ => None,
    });
    let Some((channel, slot, unless)) = awaited else { return quote!(|_| ::core::option::Option::None) };
    let (at, name, port) = (&stage.at, &kernel.channels[channel].name, port_of(kernel, channel));
    let free = unless.as_ref().map(|unless| quote!(if #unless { return ::core::option::Option::None }));
    // What is named may go by the stage's routings, too.
    let routings = routings(kernel, stage).map(|(name, channel, size)| {
        let routing = routing_of(kernel, channel, size, quote!(Receive));
        quote!(#[allow(unused_variables)] let #name = #routing;)
    });
    quote! {
        |coordinates| {
            let index = {
                #(#routings)*
                let #at = &::entwine::device::At::new(role, coordinates);
                #free
                #slot
            };
            let port: ::entwine::device::Port<#name, ::entwine::device::Receive, R> = #port;
            ::core::option::Option::Some(port.slot(index).place())
        }
    }
}
