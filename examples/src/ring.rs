//! The kernel of `07_ring`: what channels don't fit, written with one-sided operations.

use entwine::prelude::*;

/// Y = Σ X over the ranks, on every rank, by way of a ring: each rank's columns are cut into as many parts as there are ranks;
/// a part goes around from its first rank on, each adding its own, and the last one stores the sum on all.
#[entwine::kernel(tiles = [(64, 128), (64, 64)], elements = [f32, bf16, f16], roles = one)]
pub mod ring_all_reduce {
    use super::*;

    #[stage(grid = [m / BM, n / world / BN])]
    fn reduce(
        at: At<2>,
        /// Counts the launches that the same `arrived` is used for, from 1 on.
        launch: u32,
        #[shape(m, n)] x: &mut Symmetric<T>,
        /// What the rank before sends.
        #[shape(m, n)]
        inbox: &mut Symmetric<T>,
        /// The launch in which each tile's part came last, by step: zero before the first.
        #[shape(blocks, world)]
        arrived: &mut Symmetric<u32>,
        #[shape(m, n)] y: &mut Symmetric<T>,
    ) {
        let (rank, world) = (at.rank(), at.world());
        let next = (rank + 1) % world;
        let width = tiles(x.columns(), world);
        let columns = |part: u32| {
            let first = (part * width).min(x.columns());
            (first, width.min(x.columns() - first))
        };
        let block = at[0] * tiles(width, BN as u32) + at[1];

        let (first, count) = columns(rank);
        let mut sum: Tile<T, BM, BN> = x.here().columns_from(first, count).load(at.coordinates()).read();
        for step in 0..world - 1 {
            let (first, count) = columns((rank + world - step) % world);
            inbox.on(next).columns_from(first, count).tile(at.coordinates()).store(&sum);
            arrived.on(next).word([block, step]).store(launch, Release, Sys);
            arrived.here().word([block, step]).wait_until(Comparison::AtLeast, launch);
            let (first, count) = columns((rank + world - step - 1) % world);
            let own: Tile<T, BM, BN> = x.here().columns_from(first, count).load(at.coordinates()).read();
            sum = inbox.here().columns_from(first, count).load(at.coordinates()).read() + &own;
        }
        let (first, count) = columns(next);
        for rank in 0..world {
            y.on(rank).columns_from(first, count).tile(at.coordinates()).store(&sum);
        }
    }
}
