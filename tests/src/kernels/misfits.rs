//! What must be found: matrices that are not as large as a routing or a channel says, tiles outside of them, gates that are told
//! wrong numbers.

use entwine::prelude::*;

/// Rows that go by a routing, and come back as sums, with matrices of any size: four groups, of which each row chooses two, and
/// room for four blocks.
#[entwine::kernel(tiles = [(64, 64)])]
pub mod routed {
    use super::*;

    #[channel(rows = m / world, choices = 2, groups = 4, capacity = 256)]
    pub struct Experts(Routing);

    #[channel(slots = [g], guards = rows)]
    pub struct Arrived(Gate);

    #[stage(grid = [1])]
    fn route(
        _at: At<1>,
        #[shape(m / world, 2)] choices: &Matrix<u32>,
        #[shape(m / world, 2)] weights: &Matrix<f32>,
        #[send] experts: Experts,
        #[shape(1, l)] loads: &mut Matrix<u32>,
    ) {
        experts.arrange(choices, weights, loads);
    }

    #[stage(grid = [4, 16], within = experts, order = row_major, carrier = mover)]
    fn dispatch(
        at: At<2>,
        #[recv] experts: Experts,
        stray: u32,
        #[lent]
        #[shape(mx / world, h)]
        x: &Matrix<T>,
        #[shape(r, hr)] rows: &mut Matrix<T>,
        #[send] arrived: Arrived,
    ) {
        experts.scatter::<4, _, _>([at[0] + stray, at[1]], x, rows, arrived);
    }

    /// What has come is there, and nothing else is read of it.
    #[stage(grid = [4, 1], within = experts)]
    fn read(
        at: At<2>,
        #[recv] experts: Experts,
        #[recv] arrived: Arrived,
        rows: &Matrix<T>,
        beyond: u32,
        #[shape(r, hr)] copied: &mut Matrix<T>,
    ) {
        let [block, column] = at.coordinates();
        arrived.slot([block]).wait();
        if experts.group(block + beyond) < 4 {
            copied.tile([block, column]).store(rows.load::<BM, BN>([block, column]));
        }
    }

    #[stage(grid = [m / world / BM, 1])]
    fn sum(
        at: At<2>,
        #[recv] experts: Experts,
        astray: u32,
        #[shape(s, h)] summed: &Matrix<T>,
        #[shape(m / world, h)] y: &mut Matrix<T>,
        #[shape(1, g)] _gates: &Matrix<u32>,
    ) {
        let [row, column] = at.coordinates();
        let sum: Tile<f32, BM, BN> = experts.weighted_sum([at.rank() + astray, row, column], summed);
        y.tile([row, column]).store(sum.cast());
    }
}

/// Tiles of a matrix that are stored to the same places of another, whatever its size; and those of a share of it.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32])]
pub mod spilled {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn copy(
        at: At<2>,
        part: u32,
        #[shape(m, n)] x: &Matrix<T>,
        #[shape(p, q)] y: &mut Matrix<T>,
        #[shape(world * m, n)] z: &mut Sharded<T>,
    ) {
        y.tile(at.coordinates()).store(x.load::<BM, BN>(at.coordinates()));
        z.shard_mut(part).tile(at.coordinates()).store(x.load::<BM, BN>(at.coordinates()));
    }
}

/// Tiles that are sent to the next rank in slots up to the `last`, and so in that one again and again, and in those of the rank `stray`
/// ranks further on.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32])]
pub mod resent {
    use super::*;

    #[channel(slots = [world, m / BM])]
    pub struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [m / BM])]
    fn send(at: At<1>, #[shape(m, 64)] x: &Matrix<T>, last: u32, stray: u32, #[send] moved: Moved) {
        let [row] = at.coordinates();
        let (next, sender) = ((at.rank() + 1) % at.world(), (at.rank() + stray) % at.world());
        moved.to(next).slot([sender, row.min(last)]).store(x.load([row, 0]));
    }

    #[stage(grid = [m / BM])]
    fn receive(at: At<1>, last: u32, #[recv] moved: Moved, #[shape(m, 64)] y: &mut Matrix<T>) {
        let [row] = at.coordinates();
        let before = (at.rank() + at.world() - 1) % at.world();
        y.tile([row, 0]).store(moved.slot([before, row.min(last)]).load());
    }
}

/// Tiles that lie in the next rank's c, whatever the size of it and however many slots there are.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32])]
pub mod overfilled {
    use super::*;

    #[channel(slots = [m / BM, n / BN], into = c)]
    pub struct Filled(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn fill(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] filled: Filled) {
        let next = (at.rank() + 1) % at.world();
        filled.to(next).slot([at[0], at[1]]).store(x.load([at[0], at[1]]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn collect(at: At<2>, #[recv] filled: Filled, #[shape(p, q)] c: &mut Matrix<T>) {
        c.tile([at[0], at[1]]).store(filled.slot([at[0], at[1]]).load());
    }
}

/// Rows of tiles behind gates that are told to wait for as many tiles as a scalar says.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32])]
pub mod miscounted {
    use super::*;

    #[channel(slots = [m / BM], guards = y)]
    pub struct Complete(Gate);

    #[stage(grid = [m / BM, n / BN])]
    fn copy(
        at: At<2>,
        count: u32,
        #[shape(m, n)] x: &Matrix<T>,
        #[shape(m, n)] y: &mut Matrix<T>,
        #[send] complete: Complete,
    ) {
        y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
        complete.slot([at[0]]).arrive(count);
    }

    #[stage(grid = [m / BM, n / BN])]
    fn read(at: At<2>, #[recv] complete: Complete, y: &Matrix<T>, #[shape(m, n)] z: &mut Matrix<T>) {
        complete.slot([at[0]]).wait();
        z.tile([at[0], at[1]]).store(y.load::<BM, BN>([at[0], at[1]]));
    }
}

/// Panels that are sent on a channel whose panels are as wide as another matrix.
#[entwine::kernel(tiles = [(64, 128)])]
pub mod narrowed {
    use super::*;

    #[channel(slots = [m / BM], columns = k)]
    pub struct Panels(Panel<T, BM>);

    #[stage(grid = [m / BM])]
    fn send(at: At<1>, #[shape(m, w)] x: &Matrix<T>, #[send] panels: Panels) {
        panels.to((at.rank() + 1) % at.world()).slot([at[0]]).store(x.row_panel(at[0]));
    }

    #[stage(grid = [m / BM, n / BN])]
    fn multiply(at: At<2>, #[recv] panels: Panels, #[shape(n, k)] b: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        let panel = panels.slot([at[0]]).load();
        y.tile([at[0], at[1]]).store(matmul(panel, b.row_panel::<BN>(at[1])).cast());
    }
}

/// Tiles in an order that is none: the first one again and again, or one row further on than there is.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32])]
pub mod misled {
    use super::*;

    fn halted(step: Step<2>) -> [u32; 2] {
        [0, step.index / u32::MAX]
    }

    fn beyond(step: Step<2>) -> [u32; 2] {
        let [row, column] = row_major(step);
        [row + 1, column]
    }

    #[stage(grid = [m / BM, n / BN], order = halted)]
    fn first(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[shape(m, n)] y: &mut Matrix<T>) {
        y.tile(at.coordinates()).store(x.load::<BM, BN>(at.coordinates()));
    }

    #[stage(grid = [p / BM, q / BN], order = beyond)]
    fn second(at: At<2>, #[shape(p, q)] u: &Matrix<T>, #[shape(p, q)] v: &mut Matrix<T>) {
        v.tile(at.coordinates()).store(u.load::<BM, BN>(at.coordinates()));
    }
}
