//! Embedding bags of tables that are split over the ranks, each pooled block given to the rank that owns its part of the batch.

use entwine::prelude::*;

/// Every rank has `tables` tables and pools their rows for the whole batch; it ends with its share of the batch, pooled from
/// all ranks' tables.
///
/// `out` has a row for each of a rank's bags, and `d` columns for each table: rank 0's tables first. Rows are added up in
/// `f32`, in the order of each bag, and their sums, or means, rounded once. Each block is stored where it stays, as soon as it
/// is pooled. An index that is no row's gives the launch up, and its position is in the error.
#[entwine::kernel(tiles = [(64, 64), (64, 128)], elements = [f32, f16, bf16], roles = one)]
pub mod embedding_all_to_all {
    use super::*;

    /// The blocks for other ranks first.
    #[stage(grid = [world, tables, batch / world / BM, d / BN], order = peers_first)]
    fn pool(
        at: At<4>,
        /// The rows of this rank's tables, table after table.
        #[shape(rows, d)]
        table: &Matrix<T>,
        /// Where each table begins among the rows, and where the last one ends.
        #[shape(1, tables + 1)]
        begins: &Matrix<u32>,
        /// Where each of a table's bags begins among the indices, and where the last one ends.
        #[shape(tables, batch + 1)]
        offsets: &Matrix<u32>,
        /// The rows of the bags, counted in their table; there may be room for more.
        #[shape(1, room)]
        indices: &Matrix<u32>,
        /// Whether means are wanted, or else sums.
        mean: bool,
        #[shape(batch / world, world * tables * d)] out: &mut Symmetric<T>,
    ) {
        let [owner, number, block, column] = at.coordinates();
        let (first, end) = (begins.at([0, number]), begins.at([0, number + 1]));
        assert!(first <= end, "`begins` decreases: a table would end before it begins");
        let share = tiles(offsets.columns() - 1, at.world());
        let bags = Bags::new(offsets, number, indices).from(owner * share, share).mean(mean);
        let pooled: Tile<f32, BM, BN> = table.rows_from(first, end - first).pool([block, column], &bags);
        let d = table.columns();
        let theirs = out.on(owner).columns_from((at.rank() * offsets.rows() + number) * d, d);
        theirs.tile([block, column]).store(pooled.cast::<T>());
    }
}
