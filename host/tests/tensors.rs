//! Tensors: what goes in comes out, on every rank.

use entwine::device::Element;
use entwine::prelude::{bf16, f16};
use entwine::{Tensor, TensorElement, World};

fn worlds() -> impl Iterator<Item = World> {
    (1..=4).map(|ranks| World::builder().simulated(ranks).guards().build().unwrap())
}

fn numbers<T: TensorElement + Element>(count: usize) -> Vec<T> {
    (0..count).map(|number| T::from_f32((number % 251) as f32)).collect()
}

fn round_trip<T: TensorElement + Element + PartialEq + std::fmt::Debug>() {
    for world in worlds() {
        for [rows, columns] in [[0, 0], [0, 5], [1, 1], [3, 7], [8, 8], [129, 65]] {
            let data = numbers::<T>(rows * columns);
            let scattered = world.scatter([rows, columns], &data).unwrap();
            assert_eq!(scattered.gather().unwrap(), data);
            let replicated = world.replicate([rows, columns], &data).unwrap();
            (0..world.ranks()).for_each(|rank| assert_eq!(replicated.to_vec(rank).unwrap(), data));
        }
        assert!(world.guards_intact().unwrap());
    }
}

#[test]
fn elements_of_every_type_survive() {
    round_trip::<bf16>();
    round_trip::<f16>();
    round_trip::<f32>();
}

#[test]
fn every_bit_pattern_survives() {
    let world = World::simulated(3).unwrap();
    let data: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let gathered = world.scatter([256, 256], &data).unwrap().gather().unwrap();
    assert!(gathered.iter().zip(&data).all(|(found, expected)| found.to_bits() == expected.to_bits()));
}

#[test]
fn the_last_ranks_own_fewer_rows_or_none() {
    let world = World::simulated(4).unwrap();
    let shapes = |rows| {
        let tensor: Tensor<f32> = world.zeros_scattered([rows, 3]).unwrap();
        (0..4).map(|rank| tensor.shape(rank)).collect::<Vec<_>>()
    };
    assert_eq!(shapes(9), [[3, 3], [3, 3], [3, 3], [0, 3]]);
    assert_eq!(shapes(2), [[1, 3], [1, 3], [0, 3], [0, 3]]);
    assert_eq!(shapes(0), [[0, 3]; 4]);
}

#[test]
fn ranks_may_differ_in_rows_but_not_in_columns() {
    let world = World::simulated(2).unwrap();
    let tensor = world.per_rank(|rank| ([rank + 1, 2], numbers::<f32>(2 * (rank + 1)))).unwrap();
    assert_eq!((tensor.shape(0), tensor.shape(1)), ([1, 2], [2, 2]));
    assert_eq!(tensor.gather().unwrap(), [0.0, 1.0, 0.0, 1.0, 2.0, 3.0]);
    let error = world.per_rank(|rank| ([1, rank + 1], numbers::<f32>(rank + 1))).unwrap_err();
    assert_eq!(error.to_string(), "a tensor has as many columns on every rank: 1 on rank 0, but 2 on rank 1");
}

#[test]
fn writing_and_filling_replace_everything() {
    for world in worlds() {
        let mut tensor = world.filled([5, 7], f16::from_f32(2.5)).unwrap();
        assert_eq!(tensor.to_vec(0).unwrap(), [f16::from_f32(2.5); 35]);
        tensor.write(0, &numbers(35)).unwrap();
        assert_eq!(tensor.to_vec(0).unwrap(), numbers::<f16>(35));
        tensor.fill(f16::NAN).unwrap();
        assert!(tensor.gather().unwrap().iter().all(|element| element.is_nan()));
        assert!(world.guards_intact().unwrap());
    }
}

#[test]
fn a_wrong_number_of_elements_is_refused() {
    let world = World::simulated(2).unwrap();
    let expected = "6 × 4 elements are expected, and 23 were given";
    assert_eq!(world.scatter([6, 4], &numbers::<f32>(23)).unwrap_err().to_string(), expected);
    assert_eq!(world.replicate([6, 4], &numbers::<f32>(23)).unwrap_err().to_string(), expected);
    let mut tensor: Tensor<f32> = world.zeros([6, 4]).unwrap();
    assert_eq!(tensor.write(1, &numbers(23)).unwrap_err().to_string(), expected);
}

#[test]
fn more_rows_than_can_be_counted_are_refused() {
    let world = World::simulated(1).unwrap();
    let error = world.zeros::<f32>([1 << 31, 0]).unwrap_err().to_string();
    assert_eq!(error, "a matrix has at most 2³¹ − 1 rows and columns, not 2147483648 × 0");
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let world = World::simulated(1).unwrap();
    let error = world.zeros::<f32>([i32::MAX as usize, i32::MAX as usize]).unwrap_err().to_string();
    assert!(error.starts_with("rank 0: could not allocate"), "{error}");
}
