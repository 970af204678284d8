//! Orders visit every tile of a stage once.

use entwine_device::order::{ROWS_TOGETHER, Step, grouped, in_spans, peers_first, ring, row_major};
use proptest::collection::vec;
use proptest::prelude::*;

/// The tiles that an order visits, by their row-major index, in its sequence.
fn sequence<const D: usize>(order: fn(Step<D>) -> [u32; D], grid: [u32; D], rank: u32, world: u32) -> Vec<[u32; D]> {
    spanned(order, grid, rank, world, 0)
}

fn spanned<const D: usize>(
    order: fn(Step<D>) -> [u32; D],
    grid: [u32; D],
    rank: u32,
    world: u32,
    span: u32,
) -> Vec<[u32; D]> {
    (0..grid.iter().product())
        .map(|index| order(Step { index, grid, rank, world, span, rows_together: ROWS_TOGETHER }))
        .collect()
}

fn visits_each_tile_once<const D: usize>(order: fn(Step<D>) -> [u32; D], grid: [u32; D], rank: u32, world: u32) {
    let mut visited = sequence(order, grid, rank, world);
    visited.sort();
    assert_eq!(visited, sequence(row_major, grid, rank, world), "grid {grid:?}, rank {rank} of {world}");
}

fn every_order_is_one_to_one<const D: usize>(mut grid: [u32; D], rank: u32, world: u32) {
    for order in [row_major, grouped, |step| in_spans(step, 3, grouped)] {
        visits_each_tile_once(order, grid, rank, world);
    }
    grid[0] = world;
    for order in [peers_first, ring] {
        visits_each_tile_once(order, grid, rank, world);
    }
    if D > 1 {
        visits_each_tile_once(|step| in_spans(step, 2, peers_first), grid, rank, world);
    }
}

fn blocks_are_in_turn<const D: usize>(mut grid: [u32; D], rank: u32, world: u32) {
    grid[0] = world;
    let block = grid[1..].iter().product::<u32>() as usize;
    let owners = |order| sequence(order, grid, rank, world).into_iter().map(|tile| tile[0]).collect::<Vec<_>>();
    let from = |first: u32| (0..world).flat_map(|i| vec![(first + i) % world; block]).collect::<Vec<_>>();
    assert_eq!(owners(ring), from(rank), "its own block is first");
    assert_eq!(owners(peers_first), from(rank + 1), "its own block is last");
}

proptest! {
    #[test]
    fn orders_are_one_to_one(extents in vec(0..40u32, 4), rank in 0..8u32, world in 1..=8u32) {
        let [x, y, z, w] = extents[..] else { unreachable!() };
        let rank = rank % world;
        every_order_is_one_to_one([x], rank, world);
        every_order_is_one_to_one([x, y], rank, world);
        every_order_is_one_to_one([x, y, z], rank, world);
        every_order_is_one_to_one([x % 6, y % 4, z, w % 4], rank, world);
        every_order_is_one_to_one([x % 4, y % 6, z % 4, w], rank, world);
    }

    #[test]
    fn blocks_follow_the_ranks(extents in vec(0..20u32, 3), rank in 0..8u32, world in 1..=8u32) {
        let [x, y, z] = extents[..] else { unreachable!() };
        let rank = rank % world;
        blocks_are_in_turn([world], rank, world);
        blocks_are_in_turn([world, x], rank, world);
        blocks_are_in_turn([world, x, y], rank, world);
        blocks_are_in_turn([world, x % 5, y, z], rank, world);
    }
}

proptest! {
    #[test]
    fn spans_of_columns_follow_each_other(extents in vec(0..20u32, 3), span in 1..24u32, rank in 0..8u32, world in 1..=8u32) {
        let [x, y, z] = extents[..] else { unreachable!() };
        let rank = rank % world;
        spans_are_in_turn([world, x, y], rank, world, span);
        spans_are_in_turn([world, x % 4, y, z], rank, world, span);
    }

    #[test]
    fn what_a_tile_waits_for_comes_earlier_on_its_sender(extents in vec(1..12u32, 2), span in 0..14u32, world in 2..=8u32) {
        let grid = [world, extents[0], extents[1]];
        let position = |rank, tile| {
            spanned(peers_first, grid, rank, world, span).iter().position(|visited| *visited == tile).unwrap()
        };
        for rank in 0..world {
            for (at, tile) in spanned(peers_first, grid, rank, world, span).into_iter().enumerate() {
                if tile[0] == rank {
                    let sender = (rank + 1) % world;
                    prop_assert!(position(sender, tile) < at, "rank {rank} waits at {at} for {tile:?}");
                }
            }
        }
    }
}

/// In each span, the order is that of a grid with the span's columns alone.
fn spans_are_in_turn<const D: usize>(grid: [u32; D], rank: u32, world: u32, span: u32) {
    for order in [peers_first, ring] {
        let mut expected = Vec::new();
        for left in (0..grid[D - 1]).step_by(span as usize) {
            let mut part = grid;
            part[D - 1] = span.min(grid[D - 1] - left);
            expected.extend(sequence(order, part, rank, world).into_iter().map(|mut tile| {
                tile[D - 1] += left;
                tile
            }));
        }
        assert_eq!(
            spanned(order, grid, rank, world, span),
            expected,
            "grid {grid:?}, span {span}, rank {rank} of {world}"
        );
    }
}

#[test]
fn a_wave_of_ctas_stays_in_few_rows() {
    let first_wave = sequence(ring, [4, 64, 32], 2, 4).into_iter().take(128);
    assert!(first_wave.clone().all(|[owner, row, column]| owner == 2 && row < 16 && column < 8));
}
