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

fn per_rank<T: TensorElement>(world: &World, which: usize, shape: [usize; 2]) -> Tensor<T> {
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

fn round_trip_of<T: TensorElement>(tile: (u32, u32)) {
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
