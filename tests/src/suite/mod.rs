//! One suite for two worlds: cases as functions over the ranks that they run on, simulated ones or GPUs.
//!
//! A case's documentation names the faults of other systems that it covers, by their numbers in `cases.md`.

mod bits;
mod columns;
mod embedding;
mod exchange;
mod faults;
mod gpus;
mod graphs;
mod large;
mod misfits;
mod moe;
mod number;
mod one_sided;
mod product;
mod ranks;
mod refusals;
mod reuse;
mod shapes;
mod starts;
mod timeline;
mod words;
mod woven;

use anyhow::Result;
use entwine::device::{bf16, f16};

use product::{AllGather, AllReduce, Alone, Arriving, Decode, ReduceScatter};
pub use ranks::Ranks;

/// A test.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its path in this module, and the kernel and element that it is for.
    pub name: &'static str,
    /// The fewest ranks that it makes sense on.
    pub ranks: usize,
    /// Runs it.
    pub run: fn(&Ranks) -> Result<()>,
}

/// Adds cases: `each!(list, fewest ranks, module::case, …)`, those with types as `module::case<types>`.
macro_rules! each {
    ($cases:ident, $ranks:literal, $($module:ident::$case:ident $(<$($type:ident),*>)?),+) => {
        $cases.extend([$(Case {
            name: concat!(stringify!($module), "::", stringify!($case) $($(, "::", stringify!($type))*)?),
            ranks: $ranks,
            run: $module::$case $(::<$($type),*>)?,
        }),+]);
    };
}

/// Adds cases for each element type.
macro_rules! elements {
    ($cases:ident, $ranks:literal, $($module:ident::$case:ident),+) => {
        $(each!($cases, $ranks, $module::$case<bf16>, $module::$case<f16>);)+
    };
}

/// Adds cases for each kernel that communicates.
macro_rules! fused {
    ($cases:ident, $ranks:literal, $($module:ident::$case:ident),+) => {
        $(each!(
            $cases,
            $ranks,
            $module::$case<ReduceScatter, bf16>,
            $module::$case<AllReduce, bf16>,
            $module::$case<AllGather, bf16>,
            $module::$case<Decode, bf16>
        );)+
    };
}

/// Adds cases for each kernel and element type.
macro_rules! products {
    ($cases:ident, $ranks:literal, $($module:ident::$case:ident),+) => {
        $(
            fused!($cases, $ranks, $module::$case);
            each!(
                $cases,
                $ranks,
                $module::$case<Alone, bf16>,
                $module::$case<Alone, f16>,
                $module::$case<ReduceScatter, f16>,
                $module::$case<AllReduce, f16>,
                $module::$case<AllGather, f16>,
                $module::$case<Decode, f16>
            );
        )+
    };
}

/// The cases for any ranks.
pub fn everywhere() -> Vec<Case> {
    let mut cases = Vec::new();
    products!(cases, 1, shapes::ragged, shapes::of_any_size);
    each!(cases, 1, shapes::ragged<Arriving, bf16>, shapes::of_any_size<Arriving, bf16>);
    elements!(cases, 1, exchange::ragged, exchange::of_any_size);
    products!(cases, 1, bits::same_in_every_run, bits::rows_do_not_depend_on_the_others);
    products!(cases, 1, bits::special_values, bits::sums_beyond_the_elements);
    products!(cases, 1, reuse::tiles_alternate);
    elements!(cases, 1, reuse::kernels_alternate, shapes::strided);
    fused!(cases, 1, reuse::back_to_back, reuse::epochs_wrap, reuse::graphs_alternate);
    fused!(cases, 1, reuse::choices_alternate, reuse::limited_link);
    fused!(cases, 2, starts::later_than_the_deadline, starts::late_in_turn);
    fused!(cases, 1, starts::allocations_meanwhile, starts::dropped_meanwhile);
    each!(cases, 2, faults::missing_partial_tile, faults::missing_sum, faults::missing_panel);
    each!(cases, 1, faults::index_out_of_bounds, faults::slot_out_of_range);
    elements!(cases, 1, moe::routings, moe::of_nothing, moe::back_to_back, moe::in_halves);
    each!(cases, 1, moe::overflow, moe::epochs_wrap<bf16>, moe::many_choices<bf16>);
    each!(cases, 1, moe::late_rows, moe::missing_rows);
    each!(cases, 1, refusals::tensors, refusals::foreign_memory, refusals::settings, refusals::routings);
    fused!(cases, 1, timeline::records);
    each!(cases, 1, timeline::records<Alone, bf16>, timeline::records_orders<bf16>);
    each!(cases, 1, one_sided::blocks<f32>, one_sided::blocks<bf16>, one_sided::tiles<f32>);
    elements!(cases, 1, one_sided::tiles);
    each!(cases, 1, embedding::ragged<f32>, embedding::ragged<bf16>, embedding::ragged<f16>);
    each!(
        cases,
        1,
        embedding::of_any_size<f32>,
        embedding::of_any_size<bf16>,
        embedding::index_out_of_range,
        embedding::offset_out_of_range
    );
    each!(cases, 1, embedding::in_a_row, embedding::of_shards);
    each!(cases, 1, one_sided::barriers, one_sided::strange_ranks);
    each!(cases, 1, misfits::routed_matrices, misfits::slots_in_a_matrix, misfits::bags_of_a_bad_table);
    each!(cases, 2, one_sided::spins, one_sided::out_of_range, one_sided::never_held, one_sided::too_narrow);
    each!(cases, 1, words::every_operation<u32>, words::every_operation<i32>, words::every_operation<u64>);
    each!(cases, 1, words::every_operation<i64>, words::every_operation<f32>, words::every_operation<f16>);
    each!(cases, 1, words::every_operation<bf16>);
    elements!(cases, 1, woven::normalizes, woven::scalar_functions, woven::rotates, woven::broadcasts);
    elements!(cases, 1, woven::mirrors, woven::copies_then_multiplies);
    elements!(cases, 1, columns::biased, columns::biased_twice, columns::biased_together);
    each!(cases, 1, columns::biased_together<f32>);
    cases
}

/// The cases that only simulated ranks show.
pub fn simulated() -> Vec<Case> {
    let mut cases = Vec::new();
    each!(cases, 1, misfits::tiles_outside, misfits::gates_with_wrong_numbers, misfits::narrow_panels);
    each!(cases, 1, misfits::slots_of_others, misfits::columns_outside, one_sided::spins_alone);
    each!(cases, 1, misfits::orders_that_mislead, moe::missing_signals);
    cases
}

/// The cases that only GPUs show.
pub fn gpus() -> Vec<Case> {
    let mut cases = Vec::new();
    each!(cases, 2, gpus::launch_blocking);
    each!(
        cases,
        1,
        gpus::own_streams,
        gpus::tunes,
        gpus::code_for_ampere,
        gpus::shared,
        gpus::worlds,
        graphs::wrong_streams
    );
    fused!(cases, 1, graphs::inputs_change, graphs::captured);
    each!(cases, 1, moe::replayed<bf16>);
    each!(cases, 2, graphs::faults_in_replays, graphs::replayed_on_one_rank);
    cases
}

/// The cases that only ranks with a GPU each show.
pub fn apart() -> Vec<Case> {
    let mut cases = Vec::new();
    each!(cases, 2, gpus::occupied, gpus::memory_of_another_gpu);
    cases
}

/// The cases that need minutes and tens of gigabytes, and GPUs for that.
pub fn large() -> Vec<Case> {
    let mut cases = Vec::new();
    elements!(cases, 1, large::offsets_over_2_gib, large::reduce_scatter, large::all_gather);
    cases
}
