//! Parts of matrices that are read by address and not by tensor map.

use entwine::prelude::*;

/// Bags of each rank's rows of a table, pooled by all ranks from their own copy of it; and of those after the first row, taken for
/// a matrix of their own.
#[entwine::kernel(tiles = [(64, 64)], elements = [f32], roles = one)]
pub mod pooled_shards {
    use super::*;

    #[stage(grid = [world, b / world / BM, d / BN])]
    fn pool(
        at: At<3>,
        #[shape(t, d)] table: &Sharded<T>,
        #[shape(1, b / world + 1)] offsets: &Matrix<u32>,
        #[shape(1, i)] indices: &Matrix<u32>,
        #[shape(b, d)] whole: &mut Sharded<T>,
        #[shape(b, d)] rest: &mut Sharded<T>,
    ) {
        let [owner, row, column] = at.coordinates();
        let (shard, bags) = (table.shard(owner), Bags::new(offsets, 0, indices));
        let sums: Tile<f32, BM, BN> = shard.pool([row, column], &bags);
        whole.shard_mut(owner).tile([row, column]).store(sums.cast::<T>());
        let sums: Tile<f32, BM, BN> = shard.rows_from(1, shard.rows() - 1).pool([row, column], &bags);
        rest.shard_mut(owner).tile([row, column]).store(sums.cast::<T>());
    }
}
