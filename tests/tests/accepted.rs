//! Kernels that break no rule, though they come near to one.

use entwine::World;
use entwine::prelude::*;

/// What the macro reads off a body is no more than calls on the parameter itself: here it is used in other ways.
#[entwine::kernel]
mod by_other_names {
    use super::*;

    #[channel(slots = [world, m / BM, n / BN], senders = 2)]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [m / BM, n / BN])]
    fn renamed(at: At<2>, #[shape(m, n)] x: &Matrix<T>, #[send] moved: Moved) {
        let port = moved.to((at.rank() + 1) % at.world());
        if at[0].is_multiple_of(2) {
            port.slot([at.rank(), at[0], at[1]]).store(x.load([at[0], at[1]]));
        }
    }

    #[stage(grid = [m / BM, n / BN])]
    fn shadowed(at: At<2>, x: &Matrix<T>, #[send] moved: Moved) {
        let [row, column] = at.coordinates();
        let moved = moved.to((at.rank() + 1) % at.world());
        if !row.is_multiple_of(2) {
            moved.slot([at.rank(), row, column]).store(x.load([row, column]));
        }
    }

    #[stage(grid = [m / BM, n / BN])]
    fn receive(at: At<2>, #[recv] moved: Moved, #[shape(m, n)] y: &mut Matrix<T>) {
        let from = (at.rank() + at.world() - 1) % at.world();
        y.tile(at.coordinates()).store((moved.slot([from, at[0], at[1]])).load());
    }
}

/// A chain through the ranks: a load before a store is no fault where the first rank waits for none. The order is the
/// author's own, who so answers for it.
#[entwine::kernel]
mod chain {
    use super::*;

    /// One tile after another, on every rank alike.
    fn in_turn(step: Step<1>) -> [u32; 1] {
        [step.index]
    }

    #[channel(slots = [m / BM])]
    struct Sum(Tile<T, BM, BN>);

    #[stage(grid = [m / BM], order = in_turn)]
    fn add(
        at: At<1>,
        #[shape(m, n)] x: &Matrix<T>,
        #[send]
        #[recv]
        sum: Sum,
        #[shape(m, n)] y: &mut Matrix<T>,
    ) {
        let mut total = x.load::<BM, BN>([at[0], 0]).read().cast::<f32>();
        if at.rank() > 0 {
            total += sum.slot([at[0]]).load();
        }
        if at.rank() + 1 < at.world() {
            sum.to(at.rank() + 1).slot([at[0]]).store(total.cast());
        }
        y.tile([at[0], 0]).store(total.cast::<T>());
    }
}

/// Every rank hears from every other in each launch, so that slots can be reused without asking.
#[entwine::kernel(elements = [f32])]
mod exchange {
    use super::*;

    #[channel(slots = [world, m / world / BM, n / BN], acknowledge = never)]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [world, m / world / BM, n / BN], order = peers_first)]
    fn sum(
        at: At<3>,
        #[shape(m, n)] x: &Sharded<T>,
        #[send]
        #[recv]
        moved: Moved,
        #[shape(m / world, n)] y: &mut Matrix<T>,
    ) {
        let [owner, row, column] = at.coordinates();
        let own = x.shard(owner).load::<BM, BN>([row, column]);
        if owner != at.rank() {
            return moved.to(owner).slot([at.rank(), row, column]).store(own);
        }
        let mut total = own.read();
        for rank in (0..at.world()).filter(|rank| *rank != owner) {
            total += moved.slot([rank, row, column]).load();
        }
        y.tile([row, column]).store(total);
    }
}

/// What gates guard is handed over rightly, though in ways that come near to the wrong order: one tile is stored and counted
/// after another, tiles of one kind are counted where others store, and what is loaded before the wait is fetched after it.
#[entwine::kernel(tiles = [(64, 64)])]
mod in_order {
    use super::*;

    #[channel(slots = [m / BM], guards = y)]
    struct Rows(Gate);

    #[channel(slots = [1], guards = y)]
    struct All(Gate);

    #[stage(grid = [m / BM / 2])]
    fn write(
        at: At<1>,
        #[shape(m, 64)] x: &Matrix<T>,
        #[shape(m, 64)] y: &mut Matrix<T>,
        #[send] rows: Rows,
        #[send] all: All,
    ) {
        let of = tiles(tiles(x.rows(), BM as u32), 2);
        let (first, second) = (2 * at[0], 2 * at[0] + 1);
        y.tile([first, 0]).store(x.load::<BM, BN>([first, 0]));
        rows.slot([first]).arrive(1);
        if second * (BM as u32) < x.rows() {
            y.tile([second, 0]).store(x.load::<BM, BN>([second, 0]));
            rows.slot([second]).arrive(1);
            all.slot([0]).arrive(of);
        } else {
            all.slot([0]).arrive(of);
        }
    }

    #[stage(grid = [m / BM])]
    fn read(at: At<1>, x: &Matrix<T>, #[recv] rows: Rows, y: &Matrix<T>, #[shape(m, 64)] z: &mut Matrix<T>) {
        let late = y.load::<BM, BN>([at[0], 0]);
        if at[0] == 0 {
            z.tile([0, 0]).store(x.load::<BM, BN>([0, 0]));
            return;
        }
        rows.slot([at[0]]).wait();
        z.tile([at[0], 0]).store(late);
    }

    /// Row after row, each behind its own gate.
    #[stage(grid = [1])]
    fn add(at: At<1>, #[recv] rows: Rows, #[recv] all: All, y: &Matrix<T>, #[shape(64, 64)] sum: &mut Matrix<T>) {
        rows.slot([0]).wait();
        let mut total = y.load::<BM, BN>([at[0], 0]).read().cast::<f32>();
        for row in 1..tiles(y.rows(), BM as u32) {
            if row == 1 {
                all.slot([0]).wait();
            }
            total += y.load::<BM, BN>([row, 0]);
        }
        sum.tile([0, 0]).store(total.cast::<T>());
    }
}

/// Names that the woven code has as well, or that Rust has: the tile's place is `role`, a dimension is called like a stage
/// and another like an order.
#[entwine::kernel]
mod r#loop {
    use super::*;

    fn rows(step: Step<1>) -> [u32; 1] {
        row_major(step)
    }

    #[channel(slots = [world, rows / BM], route = peers)]
    struct Moved(Tile<T, BM, BN>);

    #[stage(grid = [rows / BM], order = rows)]
    fn columns(port: At<1>, #[shape(rows, columns)] r#in: &Matrix<T>, #[send] moved: Moved) {
        moved.slot([port.rank(), port[0]]).store(r#in.load::<BM, BN>([port[0], 0]));
    }

    #[stage(grid = [world, rows / BM], order = ready_first)]
    fn r#move(
        role: At<2>,
        #[recv(slot = [role[0], role[1]], unless = role[0] == role.rank())] moved: Moved,
        #[shape(rows * world, columns)] params: &mut Sharded<T>,
    ) {
        let [from, row] = role.coordinates();
        if from != role.rank() {
            params.shard_mut(from).tile([row, 0]).store(moved.slot([from, row]).load());
        }
    }
}

#[test]
fn names_do_not_get_into_each_others_way() {
    let world = World::simulated(2).unwrap();
    let x = world.per_rank(|rank| ([130, 100], vec![bf16::from_f32(rank as f32); 13_000])).unwrap();
    let mut y = world.filled([260, 100], bf16::NAN).unwrap();
    let kernel = r#loop::load(&world).unwrap();
    kernel.launch(r#loop::Args { r#in: &x, params: &mut y }).unwrap().wait().unwrap();
    for rank in 0..2 {
        let from = 1 - rank;
        let received = &y.to_vec(rank).unwrap()[from * 13_000..][..13_000];
        assert!(received.iter().all(|element| *element == bf16::from_f32(from as f32)), "rank {rank}");
    }
}

#[test]
fn slots_are_reused_without_acknowledgement() {
    let world = World::simulated(3).unwrap();
    let kernel = exchange::load(&world).unwrap();
    let shape = [500, 130];
    let launches: Vec<_> = (0..6)
        .map(|round| {
            let x = world.per_rank(|rank| (shape, vec![(round + rank) as f32; 65_000])).unwrap();
            let mut y = world.zeros_scattered(shape).unwrap();
            let launch = kernel.launch(exchange::Args { x: &x, y: &mut y }).unwrap();
            (y, launch)
        })
        .collect();
    for (round, (y, launch)) in launches.into_iter().enumerate() {
        launch.wait().unwrap();
        let total = (3 * round + 3) as f32;
        assert!(y.gather().unwrap().iter().all(|element| *element == total), "round {round}");
    }
}

#[test]
fn a_channel_used_by_another_name_moves_its_tiles() {
    let world = World::simulated(3).unwrap();
    let shape = [300, 100];
    let x = world.per_rank(|rank| (shape, vec![bf16::from_f32(rank as f32); 30_000])).unwrap();
    let mut y = world.filled(shape, bf16::NAN).unwrap();
    by_other_names::load(&world).unwrap().launch(by_other_names::Args { x: &x, y: &mut y }).unwrap().wait().unwrap();
    for rank in 0..3 {
        let from = bf16::from_f32(((rank + 2) % 3) as f32);
        assert!(y.to_vec(rank).unwrap().iter().all(|element| *element == from), "rank {rank}");
    }
}

#[test]
fn a_chain_adds_up_rank_by_rank() {
    let world = World::simulated(4).unwrap();
    let shape = [200, 128];
    let x = world.per_rank(|rank| (shape, vec![bf16::from_f32(1.0 + rank as f32); 25_600])).unwrap();
    let mut y = world.filled(shape, bf16::NAN).unwrap();
    chain::load(&world).unwrap().launch(chain::Args { x: &x, y: &mut y }).unwrap().wait().unwrap();
    for (rank, total) in [1.0, 3.0, 6.0, 10.0].into_iter().enumerate() {
        assert!(y.to_vec(rank).unwrap().iter().all(|element| element.to_f32() == total), "rank {rank}");
    }
}

#[test]
fn what_gates_guard_is_there_when_they_open() {
    let world = World::simulated(2).unwrap();
    let shape = [192, 64];
    let x = world.per_rank(|rank| (shape, vec![bf16::from_f32(1.0 + rank as f32); 12_288])).unwrap();
    let [mut y, mut z] = [(); 2].map(|_| world.filled(shape, bf16::NAN).unwrap());
    let mut sum = world.filled([64, 64], bf16::NAN).unwrap();
    let kernel = in_order::load(&world).unwrap();
    kernel.launch(in_order::Args { x: &x, y: &mut y, z: &mut z, sum: &mut sum }).unwrap().wait().unwrap();
    for rank in 0..2 {
        assert_eq!(z.to_vec(rank).unwrap(), x.to_vec(rank).unwrap(), "rank {rank}");
        let total = bf16::from_f32(3.0 * (1.0 + rank as f32));
        assert!(sum.to_vec(rank).unwrap().iter().all(|element| *element == total), "rank {rank}");
    }
}
