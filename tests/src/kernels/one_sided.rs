//! What is done to other ranks' memory from one side: tiles, blocks, signals and barriers; and what must be found wrong.

use entwine::prelude::*;

/// Each rank hands its x on as blocks: by put, get and copy, with a signal, and to all.
#[entwine::kernel(tiles = [(64, 64), (64, 128)], elements = [f32, bf16, f16], roles = one)]
pub mod hand_on {
    use super::*;

    #[stage(grid = [m / BM])]
    fn blocks(
        at: At<1>,
        #[shape(m, n)] x: &mut Symmetric<T>,
        #[shape(m, n)] put: &mut Symmetric<T>,
        #[shape(m, n)] got: &mut Symmetric<T>,
        #[shape(m, n)] signalled: &mut Symmetric<T>,
        #[shape(world * m, n)] everywhere: &mut Symmetric<T>,
        #[shape(m / BM, world)] arrived: &mut Symmetric<u32>,
        #[shape(m / BM, world)] met: &mut Symmetric<u64>,
    ) {
        let (rank, [index]) = (at.rank(), at.coordinates());
        let next = (rank + 1) % at.world();
        let (first, columns) = (index * BM as u32, x.columns());
        let count = (x.rows() - first).min(BM as u32);
        let (origin, extent) = ([first, 0], [count, columns]);
        let mine = x.here().block(origin, extent);

        mine.put(&put.on(next).block(origin, extent));
        got.here().block(origin, extent).get(&x.on(next).block(origin, extent));
        mine.put_signal(&signalled.on(next).block(origin, extent), &arrived.on(next).word([index, rank]), index + 7);
        mine.broadcast(everywhere, [rank * x.rows() + first, 0]);
        let before = (rank + at.world() - 1) % at.world();
        arrived.here().word([index, before]).wait_until(Comparison::Equal, index + 7);

        // What has come is handed back, in two parts at once.
        met.barrier(index, Group::ALL);
        let half = count / 2;
        let upper = put.here().block(origin, [half, columns]).start_put(&got.on(before).block(origin, [half, columns]));
        let (origin, extent) = ([first + half, 0], [count - half, columns]);
        let lower = put.here().block(origin, extent).start_copy(&got.on(before).block(origin, extent));
        upper.wait();
        lower.wait();
    }
}

/// Each rank gives its x to the next one as tiles: twice over, as a part of a sum, and back.
#[entwine::kernel(tiles = [(64, 64), (64, 128)], elements = [f32, bf16, f16], roles = one)]
pub mod hand_tiles {
    use super::*;

    #[stage(grid = [m / BM, n / BN])]
    fn hand_on(
        at: At<2>,
        #[shape(m, n)] source: &Matrix<T>,
        #[shape(m, n)] doubled: &mut Symmetric<T>,
        #[shape(m, n)] total: &mut Symmetric<T>,
        #[shape(m, n)] back: &mut Symmetric<T>,
        #[shape(m, n)] row_sums: &mut Matrix<T>,
        #[shape(rows, world)] met: &mut Symmetric<u64>,
    ) {
        let [row, column] = at.coordinates();
        let next = (at.rank() + 1) % at.world();
        let x = source.load::<BM, BN>([row, column]).read();
        doubled.on(next).tile([row, column]).store(x.clone().map(|x| 2.0 * x));
        for rank in 0..at.world() {
            total.on(rank).add([row, column], &x);
        }
        met.barrier(row * tiles(source.columns(), BN as u32) + column, Group::ALL);
        back.here().tile([row, column]).store(doubled.on(next).load::<BM, BN>([row, column]));
        let sums = x.reduce_rows(|x, y| x + y);
        row_sums.tile([row, column]).store(x.zip_rows(&sums, |_, sum| sum));
    }
}

/// Counts of meetings, some of them of every other rank only.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32], roles = one)]
pub mod meet {
    use super::*;

    #[stage(grid = [tables])]
    fn meet(
        at: At<1>,
        times: u32,
        #[shape(tables, world)] met: &mut Symmetric<u64>,
        #[shape(tables, world)] even: &mut Symmetric<u64>,
        #[shape(tables, world)] seen: &mut Symmetric<u32>,
    ) {
        let [table] = at.coordinates();
        let mut evens = Group::of([0]);
        for rank in (2..at.world()).step_by(2) {
            evens = evens.with(rank);
        }
        for time in 0..times {
            for rank in 0..at.world() {
                seen.on(rank).word([table, at.rank()]).store(time + 1, Relaxed, Sys);
            }
            met.barrier(table, Group::ALL);
            for rank in 0..at.world() {
                let told = seen.here().word([table, rank]).load(Relaxed, Sys);
                assert!(told == time + 1);
            }
            met.barrier(table, Group::ALL);
            even.barrier(table, evens);
        }
    }
}

/// What must be found: words that are not there, waits for what never comes, and a scope that is too narrow.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32], roles = one)]
pub mod astray {
    use super::*;

    #[stage(grid = [1])]
    fn wander(
        at: At<1>,
        culprit: u32,
        rank: u32,
        row: u32,
        awaited: i64,
        narrow: bool,
        #[shape(m, n)] words: &mut Symmetric<i64>,
    ) {
        if at.rank() == culprit {
            words.on(rank).word([row, 1]).store(-5, Release, Sys);
            if narrow {
                words.here().word([row, 1]).fetch_add(1, Relaxed, Gpu);
            }
            words.here().word([0, 0]).wait_until(Comparison::AtMost, awaited);
        }
    }
}

/// A barrier with a rank that there may not be.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32], roles = one)]
pub mod strangers {
    use super::*;

    #[stage(grid = [1])]
    fn meet(_at: At<1>, member: u32, #[shape(1, world)] met: &mut Symmetric<u64>) {
        met.barrier(0, Group::of([0, member]));
    }
}

/// A rank that looks at a word until somebody stores to it, which nobody does.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32], roles = one)]
pub mod spinning {
    use super::*;

    #[stage(grid = [1])]
    fn spin(at: At<1>, culprit: u32, compares: bool, #[shape(1, 1)] words: &mut Symmetric<u32>) {
        let word = words.here().word([0, 0]);
        if at.rank() != culprit {
            return;
        }
        if compares {
            while word.compare_exchange(1, 0, AcqRel, Gpu).is_err() {}
        } else {
            while word.load(Acquire, Sys) == 0 {}
        }
    }
}
