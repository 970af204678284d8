//! Woven kernels do on simulated ranks what their tile functions say.

use entwine::prelude::*;
use entwine::spec::ElementType;
use entwine::{Tensor, TensorElement, World};
use entwine_tests::kernels::{all_gather_gemm, gemm_reduce_scatter, round_trip, scaled_gemm};

/// Small whole numbers, whose products and sums are exact in every element type.
fn value<T: Element>(which: usize, rank: usize, index: usize) -> T {
    T::from_f32(((index * 7 + index / 5 + rank * 3 + which) % 5) as f32 - 2.0)
}

fn matrix<T: Element>(which: usize, rank: usize, [rows, columns]: [usize; 2]) -> Vec<T> {
    (0..rows * columns).map(|index| value(which, rank, index)).collect()
}

fn per_rank<T: TensorElement + Element>(world: &World, which: usize, shape: [usize; 2]) -> Tensor<T> {
    world.per_rank(|rank| (shape, matrix(which, rank, shape))).unwrap()
}

/// `A·Bᵀ` in `f32`.
fn product<T: Element>(a: &[T], b: &[T], k: usize) -> Vec<f32> {
    let rows = |matrix: &[T]| matrix.chunks(k).map(|row| row.iter().map(|x| x.to_f32()).collect()).collect();
    let (a, b): (Vec<Vec<f32>>, Vec<Vec<f32>>) = (rows(a), rows(b));
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum();
    a.iter().flat_map(|x| b.iter().map(move |y| dot(x, y))).collect()
}

fn floats<T: Element>(elements: &[T]) -> Vec<f32> {
    elements.iter().map(|x| x.to_f32()).collect()
}

fn reduce_scatter<T: TensorElement + MatmulElement>(ranks: usize, tile: (u32, u32)) {
    let [m, n, k] = [300, 270, 40];
    let world = World::simulated(ranks).unwrap();
    let (a, b) = (per_rank::<T>(&world, 0, [m, k]), per_rank::<T>(&world, 1, [n, k]));
    let mut c = world.zeros_scattered::<T>([m, n]).unwrap();
    let kernel = gemm_reduce_scatter::load(&world).unwrap().with_tile(tile).unwrap();
    for _ in 0..3 {
        c.fill(T::from_f32(f32::NAN)).unwrap();
        kernel.launch(gemm_reduce_scatter::Args { a: &a, b: &b, c: &mut c }).unwrap().wait().unwrap();
        let products = (0..ranks).map(|rank| product::<T>(&matrix(0, rank, [m, k]), &matrix(1, rank, [n, k]), k));
        let sum = products.reduce(|sum, next| sum.iter().zip(&next).map(|(x, y)| x + y).collect()).unwrap();
        assert_eq!(floats(&c.gather().unwrap()), sum);
    }
}

#[test]
fn a_stage_sends_and_receives_on_one_channel() {
    reduce_scatter::<bf16>(1, (128, 256));
    reduce_scatter::<bf16>(3, (128, 256));
    reduce_scatter::<f16>(4, (128, 128));
}

#[test]
fn tiles_are_computed_as_panels_arrive() {
    let [m, n, k] = [520, 130, 72];
    let world = World::builder().simulated(4).ctas(12).build().unwrap();
    let a = world.scatter::<bf16>([m, k], &matrix(0, 0, [m, k])).unwrap();
    let b = per_rank::<bf16>(&world, 1, [n, k]);
    let mut c = world.filled([m, n], bf16::NAN).unwrap();
    let kernel = all_gather_gemm::load(&world).unwrap();
    kernel.launch(all_gather_gemm::Args { a: &a, b: &b, c: &mut c }).unwrap().wait().unwrap();
    for rank in 0..4 {
        let expected = product::<bf16>(&matrix(0, 0, [m, k]), &matrix(1, rank, [n, k]), k);
        assert_eq!(floats(&c.to_vec(rank).unwrap()), expected, "rank {rank}");
    }
}

fn round_trip_of<T: TensorElement + Element>(tile: (u32, u32)) {
    let shape = [200, 150];
    let world = World::simulated(3).unwrap();
    let x = per_rank::<T>(&world, 0, shape);
    let mut y = world.filled(shape, T::from_f32(f32::NAN)).unwrap();
    let kernel = round_trip::load(&world).unwrap().with_tile(tile).unwrap();
    kernel.launch(round_trip::Args { x: &x, factor: 2.0, y: &mut y }).unwrap().wait().unwrap();
    for rank in 0..3 {
        let expected: Vec<f32> = floats::<T>(&matrix(0, rank, shape)).iter().map(|x| x * 2.0).collect();
        assert_eq!(floats(&y.to_vec(rank).unwrap()), expected, "rank {rank}");
    }
}

#[test]
fn stages_are_chained_in_every_variant() {
    round_trip_of::<bf16>((64, 64));
    round_trip_of::<f32>((128, 128));
}

#[test]
fn scalars_arrive_as_they_were_given() {
    let [m, n, k] = [100, 60, 24];
    let world = World::simulated(2).unwrap();
    let (a, b) = (per_rank(&world, 0, [m, k]), per_rank(&world, 1, [n, k]));
    let mut c = world.filled([m, n], bf16::NAN).unwrap();
    let args = scaled_gemm::Args { a: &a, b: &b, scale: 0.5, shift: -7, negated: true, c: &mut c };
    scaled_gemm::load(&world).unwrap().launch(args).unwrap().wait().unwrap();
    for rank in 0..2 {
        let products = product::<bf16>(&matrix(0, rank, [m, k]), &matrix(1, rank, [n, k]), k);
        let scaled = products.chunks(n).flat_map(|row| {
            let factor = if row.iter().any(|x| *x > 0.0) { -0.5 } else { 1.0 };
            row.iter().map(move |x| x * factor - 7.0)
        });
        assert_eq!(floats(&c.to_vec(rank).unwrap()), scaled.collect::<Vec<_>>(), "rank {rank}");
    }
}

#[test]
fn the_specification_lists_every_variant() {
    let variants: Vec<_> = gemm_reduce_scatter::SPEC
        .variants
        .iter()
        .map(|variant| (variant.entry, variant.element, variant.tile))
        .collect();
    let entry = "entwine_entwine_tests_gemm_reduce_scatter";
    assert_eq!(variants[0], (&*format!("{entry}_bf16_128x256"), ElementType::Bf16, (128, 256)));
    assert_eq!(variants[3], (&*format!("{entry}_f16_128x128"), ElementType::F16, (128, 128)));
}

#[test]
fn the_protocol_can_be_read() {
    let protocol = round_trip::protocol().to_string();
    for name in ["dispatch", "double", "combine", "Out", "Back"] {
        assert!(protocol.contains(name), "{protocol}");
    }
}

/// Panels and tiles in one kernel: where k is 0, the panels' slots take no room.
#[entwine::kernel(tiles = [(64, 64)])]
mod panels_and_tiles {
    use super::*;

    #[channel(slots = [world, m / BM], route = peers, columns = k)]
    struct Panels(Panel<T, BM>);

    #[channel(slots = [world, m / BM], route = peers, by = push)]
    struct Tiles(Tile<T, BM, BN>);

    #[stage(grid = [m / BM])]
    fn send_panels(at: At<1>, #[shape(m, k)] a: &Matrix<T>, #[send] panels: Panels) {
        panels.slot([at.rank(), at[0]]).store(a.row_panel(at[0]));
    }

    #[stage(grid = [m / BM])]
    fn send_tiles(at: At<1>, #[shape(m, 64)] x: &Matrix<T>, #[send] tiles: Tiles) {
        tiles.slot([at.rank(), at[0]]).store(x.load::<BM, BN>([at[0], 0]));
    }

    /// Of each peer, A·Bᵀ + X.
    #[stage(grid = [world, m / BM], order = peers_first)]
    fn add(
        at: At<2>,
        #[shape(64, k)] b: &Matrix<T>,
        #[recv] panels: Panels,
        #[recv] tiles: Tiles,
        #[shape(world * m, 64)] y: &mut Sharded<T>,
    ) {
        let [peer, row] = at.coordinates();
        if peer != at.rank() {
            let mut sum: Tile<f32, BM, BN> = matmul(panels.slot([peer, row]).load(), b.row_panel(0));
            sum += tiles.slot([peer, row]).load();
            y.shard_mut(peer).tile([row, 0]).store(sum.cast::<T>());
        }
    }
}

#[test]
fn slots_that_take_no_room_are_no_race() {
    let [m, n] = [130, 64];
    let world = World::simulated(3).unwrap();
    let kernel = panels_and_tiles::load(&world).unwrap();
    let x = per_rank(&world, 2, [m, n]);
    for k in [0, 8] {
        let (a, b) = (per_rank(&world, 0, [m, k]), per_rank(&world, 1, [n, k]));
        let mut y = world.zeros::<bf16>([3 * m, n]).unwrap();
        kernel.launch(panels_and_tiles::Args { a: &a, x: &x, b: &b, y: &mut y }).unwrap().wait().unwrap();
        for (rank, peer) in [(0, 1), (1, 2), (2, 0)] {
            let products = match k {
                0 => vec![0.0; m * n],
                _ => product::<bf16>(&matrix(0, peer, [m, k]), &matrix(1, rank, [n, k]), k),
            };
            let sums: Vec<_> =
                floats::<bf16>(&matrix(2, peer, [m, n])).iter().zip(products).map(|(x, y)| x + y).collect();
            let found = floats(&y.to_vec(rank).unwrap());
            assert_eq!(found[peer * m * n..][..m * n], sums, "of rank {peer} on rank {rank}, k = {k}");
        }
    }
}

/// As many tiles as there are pairs.
#[entwine::kernel(tiles = [(64, 64)])]
mod pairs {
    use super::*;

    #[stage(grid = [m * n / BM, n / k])]
    fn copy(at: At<2>, #[shape(m, k)] x: &Matrix<T>, #[shape(n, k)] y: &mut Matrix<T>) {
        // Most of them have no place in either matrix.
        if at[0] < tiles(y.rows(), BM as u32) && at[1] < tiles(y.columns(), BN as u32) {
            y.tile([at[0], at[1]]).store(x.load::<BM, BN>([at[0], at[1]]));
        }
    }
}

#[test]
fn grids_that_kernels_cannot_count_are_refused() {
    let world = World::simulated(1).unwrap();
    let kernel = pairs::load(&world).unwrap();
    let launch = |m, n, k| {
        let (x, mut y) = (world.zeros::<bf16>([m, k]).unwrap(), world.zeros::<bf16>([n, k]).unwrap());
        kernel.launch(pairs::Args { x: &x, y: &mut y }).and_then(|launch| launch.wait())
    };
    launch(70, 60, 1).unwrap();
    for [m, n, k] in [[1 << 16, 1 << 16, 1], [1 << 16, 1 << 15, 1], [1, 1, 0]] {
        let error = launch(m, n, k).unwrap_err().to_string();
        assert!(
            error.contains("the tiles of stage `copy`, [m * n / BM, n / k], must be counted in 32 bits"),
            "{error}"
        );
    }
}

/// Half of the first `h` rows of each tile.
#[entwine::kernel(tiles = [(64, 64)])]
mod low {
    use super::*;

    #[channel(slots = [world, m / BM], route = peers, height = h / 2)]
    struct Top(Tile<T, BM, BN>);

    #[stage(grid = [m / BM])]
    fn send(at: At<1>, #[shape(m, 64)] x: &Matrix<T>, #[send] top: Top) {
        top.slot([at.rank(), at[0]]).store(x.load::<BM, BN>([at[0], 0]));
    }

    #[stage(grid = [world, m / BM], order = peers_first)]
    fn receive(
        at: At<2>,
        #[shape(h, 1)] _as_high: &Matrix<T>,
        #[recv] top: Top,
        #[shape(world * m, 64)] y: &mut Sharded<T>,
    ) {
        let [peer, row] = at.coordinates();
        if peer != at.rank() {
            y.shard_mut(peer).tile([row, 0]).store(top.slot([peer, row]).load());
        }
    }
}

#[test]
fn rows_beyond_the_height_are_not_sent() {
    let world = World::simulated(2).unwrap();
    let kernel = low::load(&world).unwrap();
    let launch = |m: usize, h: usize| {
        let x = world.filled([m, 64], bf16::ONE).unwrap();
        let mut y = world.zeros::<bf16>([2 * m, 64]).unwrap();
        let args = low::Args { x: &x, _as_high: &world.zeros([h, 1]).unwrap(), y: &mut y };
        kernel.launch(args).and_then(|launch| launch.wait()).map(|_| y.to_vec(0).unwrap().split_off(m * 64))
    };
    let received = launch(100, 19).unwrap();
    for (index, row) in received.chunks(64).enumerate() {
        let sent = index % 64 < 10;
        assert!(row.iter().all(|element| *element == bf16::ONE || !sent && element.is_nan()), "row {index}: {row:?}");
        assert_eq!(row[0].is_nan(), !sent, "row {index}");
    }
    let error = launch(100, 0).unwrap_err().to_string();
    let expected = "channel `Top`: expected a height (`h / 2`) of 1 row or more, of the 64 rows of its tiles, found 0";
    assert!(error.contains(expected), "{error}");
    assert_eq!(launch(0, 0).unwrap(), [], "nothing is sent where there is nothing");
}
