//! The attribute that weaves a module of tile functions into a kernel. `entwine` re-exports it; all it
//! does is in `entwine-weave`, which works on plain token streams.

use entwine_weave::Build;
use proc_macro::TokenStream;

/// Weaves a module of channels and stages into one persistent kernel for several GPUs, its typed launcher
/// and its simulated twin.
///
/// # The kernel
/// `#[entwine::kernel(tiles = [(128, 256), …], elements = [bf16, …])]` compiles one variant for each tile and
/// element: in it `BM` and `BN` are the tile's rows and columns, and `T` is the element. Left out, they are
/// `[(128, 128)]` and `[bf16]`. A tile has 64 or 128 rows, and 64 or 96 columns or a multiple of 8 from 128 to 256; those of no
/// multiple of 64 are for Hopper alone. Kernels of one crate have different names.
///
/// With `roles = one`, all threads of a CTA carry out each operation together, on tiles of 64 or 128 columns, and several CTAs
/// share a multiprocessor: for kernels that stream rather than multiply. They alone have symmetric matrices and bags. Left out, or
/// with `roles = split`, threads load, communicate and compute beside each other.
///
/// Other functions of the module may take and return tiles, rows and the like as stages do. Items that mention
/// `BM`, `BN` or `T` (or others that do) are part of each variant, and not seen from outside.
///
/// The module gains `Args` (the launch arguments, a field for each), `load`, `protocol`, `SPEC` and `Woven`, and
/// each variant `Params`, `Config`, `weave` and `simulate`: names that nothing else in it may have.
///
/// # Channels
/// `#[channel(slots = […])] pub struct Name(Tile<T, BM, BN>);` declares a channel of tiles, and `Panel<T, BM>` in
/// the place of the tile one of panels. A slot is sent at most once in a launch, by a rank that is the same in
/// every launch; a first axis of `world` stands for the sender. Further settings:
///
/// * `route = one` (the default): `.to(rank)` names the receiver; `route = peers`: every other rank receives, `route = all`:
///   every rank does, the sender too; both without `.to`.
/// * `by = pull`: the receiver fetches, from a sender that is the first axis of `slots`; `by = push`: the sender stores
///   at the receiver's. Left out, the launcher chooses where it can, and panels, which are read by every tile of their
///   rows, are pushed.
/// * `columns = k`: how long a panel's rows are.
/// * `into = c`: slots are the tiles of the receiver's argument `c`, by the rank that owns the rows, the tile's row and its
///   column if it is a `Sharded`, by row and column if it is a `Matrix`. What is sent is stored there at once; the
///   receiver, which takes `c: &mut …`, waits for it by storing what it loads where it lies:
///   `c.shard_mut(r).tile([i, j]).store(name.slot([r, i, j]).load())`. Every tile that is sent must be waited for in the
///   same launch: otherwise it may arrive after the launch has ended at the receiver.
/// * `pieces = k / 64`: panels are cut along their columns into so many pieces, each with a signal of its own.
///   `.slot([…]).piece(index).store(panel)` sends one of them, so that many tiles of a stage may share a panel; `store`
///   without `piece` sends all of them. What uses a panel waits for each piece as it comes to its columns. Pieces are
///   multiples of 128 bytes wide, so that the last ones may be narrow or empty; for an empty one nobody waits.
/// * `height = m`: no more rows of a tile are sent than that; the others read as anything, on simulated ranks as NaN.
/// * `senders = 2`: how many stages send. Default: 1.
/// * `acknowledge = never`: a slot is used anew without asking whether its receiver has finished. Only for
///   `route = peers`, and for a stage that sends and receives on the channel in the order `peers_first`, where
///   every receiver also sends to its senders. Default: `launch`.
///
/// # Gates
/// `#[channel(slots = […], guards = y)] pub struct Name(Gate);` declares gates, which hand the matrix `y` from the stages that
/// write it to those that read it, on each rank for itself. After a tile has stored into `y`, `name.slot([…]).arrive(n)` counts
/// it; once `n` tiles have been counted in a slot, those go on that `name.slot([…]).wait()` there, and read. All who
/// arrive at a slot name the same `n`, which may be known on the device alone. `ready_first` may look at gates.
///
/// # Routings
/// `#[channel(rows = m / world, choices = k, groups = e, capacity = c)] pub struct Name(Routing);` declares a routing: each
/// of the `m / world` rows of a rank chooses `k` of `e` groups, which lie evenly split over the ranks (the first
/// `⌈e / world⌉` on rank 0), and each rank has room for `c` rows. There are at most 512 groups, and the rows of a rank have fewer
/// than 2²⁰ choices. One stage, of one tile, takes it as `#[send]` and calls
/// `name.arrange(choices, weights, loads)`, with matrices of `u32`, `f32` and `u32`, and nothing else, since several CTAs share
/// out that work; the stages that take it as `#[recv]` begin when it is done. Each group's rows then have places in a matrix of `c` rows, group after group, in *blocks* of
/// `BM` rows that belong to one group:
///
/// * `name.blocks()` is their number, `name.group(block)` the group of one, counted from the rank's first. With
///   `within = name`, the first axis of a stage's grid has as many tiles; the extent that is written there is an upper bound.
/// * `name.scatter::<ROWS, _, _>([block, part], x, rows, gates)` copies what belongs into `ROWS` rows of a block, from row
///   `part · ROWS` on, to this rank's `rows`, from whatever rank's `x` it lies in: with the first of a row's places to all of
///   them, so that each crosses the link once. It counts each in the gate of its block. The stage has
///   `grid = [c / BM, BM / ROWS], within = name, carrier = mover`, and `x` is marked `#[lent]`: other ranks read it, and a
///   rank's launch ends when they have.
/// * `name.weighted_sum([rank, row, column], y)` is a tile of the sums, for rows of a rank, of what this rank's groups made
///   of them, which lies in `y`.
///
/// # Stages
/// `#[stage(grid = […])] fn name(at: At<2>, …)` declares a stage, the function of one tile. Stages run in the order
/// in which they are written. Further settings:
///
/// * `order = …`, in which a rank visits the tiles: `grouped` (the default), `row_major`, `peers_first`, `ring`,
///   `ready_first`, or a function `fn(Step<2>) -> [u32; 2]` of the module. Tiles are dealt to CTAs in turn; but with `ready_first`
///   whoever is free takes the next tile in `grouped` order, and comes back later to what wasn't ready, and where another stage is
///   `beside` this one, whoever is free takes the next in its order.
/// * `ctas = 8`: so many CTAs carry this stage and nothing else, at the same time as the others carry theirs.
/// * `carrier = mover`: one thread of every CTA carries this stage beside the others; it may only move tiles and
///   panels, or scatter rows.
/// * `beside = multiply`: the stage written before this one, with whose tiles its own take turns on each CTA: the next of its
///   own whenever the slot has arrived that is named in `#[recv(slot = […])]`, and else the next of the other's that no CTA has taken. It
///   waits for nothing else.
/// * `within = groups`: the first axis of the grid is the blocks that a routing has, the parameter of this name.
///
/// A kernel has at most 32 stages.
///
/// Parameters, after `at`:
///
/// * `&Matrix<T>`, `&mut Matrix<T>`, `&Sharded<T>` and `&mut Sharded<T>`, each with its `#[shape(rows, columns)]`
///   where it first appears. The same name in a later stage is the same argument. What one stage writes no other
///   may read, since nothing would make it wait: that goes through a channel, or is guarded by a gate. `Matrix<u32>` holds
///   numbers that control flow and coordinates may depend on, `matrix.at([row, column])`.
/// * `&mut Symmetric<T>`, where threads have one role: a matrix that every rank has and reaches on every other. Its elements
///   are those of tiles, or `u32`, `i32`, `u64` or `i64`, which `Matrix` may hold, too.
/// * `&Grouped<T>` with `#[shape(groups, rows, columns)]`: matrices one below the other, as the weights of experts lie.
///   `b.group(index)` is one of them.
/// * `#[send] name: Name`, `#[recv] name: Name`, or both: a channel. For the order `ready_first`,
///   `#[recv(slot = [at[0], at[1]])]` names the slot that a tile waits for, and `unless = at[0] == at.rank()` after
///   it the tiles that wait for none; both may go by the stage's routings.
/// * `u32`, `i32`, `u64`, `i64`, `f32`, `f64` and `bool`: scalars of the launch.
///
/// # Tiles
/// A stage's function says what a tile is made of with `matmul`, `map`, `zip`, `cast` and the rest of `Tile`. Where a shape doesn't
/// follow from where the tile goes, it is written: `a.row_panel::<BM>(i)`, `x.load::<BM, BN>([i, j])`, `let sum: Tile<f32, BM, BN> = …`.
/// Values for each row, as `reduce_rows` gives them, are combined with a tile's elements by `zip_rows`. Values for each column lie in
/// a matrix: with `#[shape(1, n)] bias: &Matrix<T>`, `product.zip_columns(&bias.column_values([0, j]), |x, bias| (x + bias).max(0.0))`
/// adds a bias to each column of a product, and cuts off what is negative. The element type may be another than the tile's, and the
/// matrix one of a `Grouped`. The values come from a cache, but nothing is computed until they have: that takes about a microsecond.
///
/// # One-sided operations
/// `x.on(rank)` is what a symmetric matrix is on a rank, `x.here()` what it is on this one:
///
/// * `.load::<M, N>([i, j]).read()`, `.tile([i, j]).store(tile)` and `.add([i, j], &tile)`: a tile, straight from and to
///   registers. What lies outside of the matrix is not stored, and reads as anything. `.columns_from(first, count)` is a part of it, whose tiles are counted from `first` on.
/// * `.word([row, column])`: one word. `.load(order, scope)`, `.store(value, order, scope)`, `.fetch_add(value, order, scope)` and
///   `sub`, `min`, `max`, `and`, `or` and `xor`, `.exchange(…)`, `.compare_exchange(expected, new, order, scope)`;
///   `.wait_until(Comparison::AtLeast, value)`. Orders are `Relaxed`, `Acquire`, `Release` and `AcqRel`, scopes `Cta`,
///   `Gpu` and `Sys`; words on a rank that is named take `Sys`. `and`, `or` and `xor` are for whole
///   numbers.
/// * `.block([row, column], [rows, columns])`: rows of words. `mine.put(&theirs)`, `mine.get(&theirs)`,
///   `block.copy(&other)`, `mine.put_signal(&theirs, &word, value)`, `mine.broadcast(x, [row, column])`; with `start_` before
///   `put`, `get` and `copy` they give a `Transfer` to wait for.
///
/// `counts.barrier(row, Group::ALL)`, on a `Symmetric<u64>`, waits until the tiles that name this row have come so far on all ranks,
/// or on those of another `Group`. A launch that takes symmetric matrices ends on all ranks together.
///
/// Words, blocks and ranks that don't exist are faults. Nothing finds accesses that no signal, word or barrier puts in order: on
/// simulated ranks races are found in channels alone. `examples/src/ring.rs` is a whole kernel.
///
/// `table.pool([i, j], &Bags::new(offsets, list, indices))` is a tile of the sums of a matrix's rows by ragged bags.
///
/// # Extents
/// `slots`, `grid`, `shape` and `columns` are made of lower-case names, `world`, `BM`, `BN`, integers, `+`, `-`, `*`,
/// `/` and parentheses; `/` rounds up, and a launch is refused for which a difference is negative. Names are free to choose. A
/// launch takes a name's size from the matrices that have the name, or the name `/ world`, in their shapes, and refuses matrices
/// that disagree. It is for a tile that it chose: a matrix whose shape names `BM` or `BN` fits one choice, so pin the tile then.
///
/// # Errors
/// What can't be right in the protocol is a compile error where it is written: a channel without a sender, a tile
/// that is waited for before it is sent, a slot with too few coordinates. What depends on the data is the author's
/// promise, and found on simulated ranks if it is broken: that every slot that is loaded is also stored, once in a launch and by the
/// rank that its first coordinate names, that tiles are stored within their matrices and values for columns lie in theirs, that
/// gates are told how many tiles they wait for, and that an order of one's own visits each tile once, none that others wait for
/// waiting for them in turn.
///
/// Not found is what tiles do to each other outside of channels: two that store to one place of a matrix, one that reads what
/// another tile of its stage stores, or that reads what a gate guards without waiting for it.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, module: TokenStream) -> TokenStream {
    entwine_weave::kernel(arguments.into(), module.into(), &Build::from_environment()).into()
}
