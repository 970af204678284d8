//! Whole launches on simulated ranks: results, reuse, refusals, faults.

mod common;

use std::time::Duration;

use common::{Args, ReduceScatter};
use entwine::device::abi::FaultKind;
use entwine::spec::Carriage;
use entwine::{Error, Injection, Kernel, RawMatrix, Tensor, World};

/// Small whole numbers, so that sums are exact in any order; every rank and element has another one.
fn value(round: usize, rank: usize, index: usize) -> f32 {
    ((round * 31 + rank * 7 + index * 3) % 1024) as f32
}

fn input(world: &World, round: usize, [m, n]: [usize; 2]) -> Tensor<f32> {
    world.per_rank(|rank| ([m, n], (0..m * n).map(|index| value(round, rank, index)).collect())).unwrap()
}

fn expected(world: &World, round: usize, [m, n]: [usize; 2]) -> Vec<f32> {
    (0..m * n).map(|index| (0..world.ranks()).map(|rank| value(round, rank, index)).sum()).collect()
}

fn output(world: &World, shape: [usize; 2]) -> Tensor<f32> {
    let mut tensor = world.zeros_scattered(shape).unwrap();
    tensor.fill(f32::NAN).unwrap();
    tensor
}

fn launch_and_check(kernel: &Kernel<ReduceScatter>, world: &World, round: usize, shape: [usize; 2]) {
    let a = input(world, round, shape);
    let mut c = output(world, shape);
    kernel.launch(Args { a: &a, c: &mut c }).unwrap().wait().unwrap();
    assert_eq!(c.gather().unwrap(), expected(world, round, shape), "round {round}, shape {shape:?}");
}

#[test]
fn shapes_alternate_on_one_kernel() {
    let world = World::builder().simulated(3).guards().build().unwrap();
    let kernel = Kernel::load(&world).unwrap();
    let shapes = [[384, 128], [1, 1], [1000, 70], [0, 64], [384, 128], [2, 300], [127, 0], [129, 64]];
    for (round, shape) in shapes.into_iter().cycle().take(24).enumerate() {
        launch_and_check(&kernel, &world, round, shape);
    }
    assert!(world.guards_intact().unwrap());
}

#[test]
fn carriages_and_spans_alternate_on_one_kernel() {
    let world = World::builder().simulated(3).guards().build().unwrap();
    let mut kernel: Kernel<ReduceScatter> = Kernel::load(&world).unwrap();
    let shape = [500, 200];
    let mut launches = Vec::new();
    for round in 0..12 {
        let carriage = if round % 3 == 0 { Carriage::Push } else { Carriage::Pull };
        kernel = kernel.with_carriage("Part", carriage).unwrap().with_span(round as u32 % 4);
        let a = input(&world, round, shape);
        let mut c = output(&world, shape);
        let launch = kernel.launch(Args { a: &a, c: &mut c }).unwrap();
        launches.push((c, launch));
    }
    for (round, (c, launch)) in launches.into_iter().enumerate() {
        launch.wait().unwrap();
        assert_eq!(c.gather().unwrap(), expected(&world, round, shape), "round {round}");
    }
    assert!(world.guards_intact().unwrap());
}

#[test]
fn launches_overlap_in_flight() {
    let world = World::simulated(4).unwrap();
    let kernel = Kernel::load(&world).unwrap();
    let shape = [512, 128];
    let rounds: Vec<_> = (0..12)
        .map(|round| {
            let a = input(&world, round, shape);
            let mut c = output(&world, shape);
            let launch = kernel.launch(Args { a: &a, c: &mut c }).unwrap();
            (c, launch)
        })
        .collect();
    for (round, (c, launch)) in rounds.into_iter().enumerate() {
        launch.wait().unwrap();
        assert_eq!(c.gather().unwrap(), expected(&world, round, shape));
    }
}

#[test]
fn threads_launch_at_once() {
    let world = World::simulated(3).unwrap();
    let kernels = [Kernel::load(&world).unwrap(), Kernel::load(&world).unwrap()];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (world, kernel) = (&world, &kernels[thread % 2]);
            scope.spawn(move || {
                (0..12)
                    .for_each(|round| launch_and_check(kernel, world, 100 * thread + round, [64 * (thread + 1), 128]));
            });
        }
    });
}

#[test]
fn nothing_finishes_before_a_late_rank() {
    let world = World::simulated(3).unwrap();
    let kernel = Kernel::load(&world).unwrap();
    for round in 0..6 {
        world.delay(round % 3, Duration::from_millis(20)).unwrap();
        launch_and_check(&kernel, &world, round, [192, 128]);
        world.delay(round % 3, Duration::ZERO).unwrap();
    }
}

#[test]
fn epochs_wrap() {
    let world = World::builder().simulated(3).first_epoch(u32::MAX - 2).build().unwrap();
    let kernel = Kernel::load(&world).unwrap();
    (0..8).for_each(|round| launch_and_check(&kernel, &world, round, [192, 64]));
    let world = World::builder().simulated(3).first_epoch((1 << 31) - 2).build().unwrap();
    let kernel = Kernel::load(&world).unwrap();
    (0..8).for_each(|round| launch_and_check(&kernel, &world, round, [192, 64]));
}

#[test]
fn dropping_mid_flight_is_sound() {
    let world = World::simulated(2).unwrap();
    for round in 0..8 {
        let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
        let a = input(&world, round, [256, 256]);
        let mut c = output(&world, [256, 256]);
        let launch = kernel.launch(Args { a: &a, c: &mut c }).unwrap();
        drop((a, c));
        match round % 3 {
            0 => drop((kernel, launch)),
            1 => drop((launch, kernel)),
            _ => {
                drop(kernel);
                launch.wait().unwrap();
            }
        }
    }
    drop(world);
}

#[test]
fn reading_a_tensor_waits_for_its_launch() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let a = input(&world, 0, [256, 128]);
    let mut c = output(&world, [256, 128]);
    let launch = kernel.launch(Args { a: &a, c: &mut c }).unwrap();
    assert_eq!(c.gather().unwrap(), expected(&world, 0, [256, 128]));
    assert!(launch.is_finished());
    launch.wait().unwrap();
}

fn with_dropped_signal(world: &World) -> Kernel<ReduceScatter> {
    let kernel = Kernel::<ReduceScatter>::load(world).unwrap().with_deadline(Duration::from_millis(200));
    kernel.inject(Injection::DropSignal { rank: 1, channel: "Part", slot: &[1, 0, 1] }).unwrap();
    kernel
}

#[test]
fn a_missing_signal_is_named_and_the_next_launch_works() {
    let world = World::simulated(2).unwrap();
    let kernel = with_dropped_signal(&world);
    let a = input(&world, 0, [256, 128]);
    let mut c = output(&world, [256, 128]);
    let error = kernel.launch(Args { a: &a, c: &mut c }).unwrap().wait().unwrap_err();
    let Error::Fault(fault) = error else { panic!("{error}") };
    assert_eq!(fault.kind, FaultKind::MissingSignal);
    assert_eq!((fault.kernel, fault.rank, fault.stage), ("reduce_scatter", 0, Some("reduce")));
    assert_eq!(fault.tile, [0, 0, 1]);
    assert_eq!((fault.channel, &*fault.slot, fault.peer), (Some("Part"), &[1, 0, 1][..], Some(1)));
    assert_eq!((fault.expected, fault.seen), (1, 0));
    (1..4).for_each(|round| launch_and_check(&kernel, &world, round, [256, 128]));
}

#[test]
fn a_fault_nobody_waited_for_is_told_by_the_next_launch() {
    let world = World::simulated(2).unwrap();
    let kernel = with_dropped_signal(&world);
    let a = input(&world, 0, [256, 128]);
    let mut c = output(&world, [256, 128]);
    drop(kernel.launch(Args { a: &a, c: &mut c }).unwrap());
    world.synchronize().unwrap();
    let error = kernel.launch(Args { a: &a, c: &mut c }).unwrap_err();
    assert!(matches!(error, Error::Fault(_)), "{error}");
    launch_and_check(&kernel, &world, 1, [256, 128]);
}

/// Whether the first launch fails depends on whether the second one's signal for the slot comes early enough to stand in
/// for the missing one; the second fails with it if it was started before.
#[test]
fn launches_around_a_fault_never_succeed_with_wrong_results() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap().with_deadline(Duration::from_millis(200));
    for round in 0..16 {
        let rank = round % 2;
        kernel.inject(Injection::DropSignal { rank, channel: "Part", slot: &[rank as u32, 0, 1] }).unwrap();
        let a = input(&world, round, [256, 128]);
        let (mut before, mut behind) = (output(&world, [256, 128]), output(&world, [256, 128]));
        let first = kernel.launch(Args { a: &a, c: &mut before }).unwrap();
        let second = kernel.launch(Args { a: &a, c: &mut behind }).unwrap();
        for (launch, c) in [(second, behind), (first, before)] {
            match launch.wait() {
                Ok(()) => assert_eq!(c.gather().unwrap(), expected(&world, round, [256, 128])),
                Err(error) => assert!(matches!(error, Error::Fault(_)), "{error}"),
            }
        }
    }
    launch_and_check(&kernel, &world, 1, [256, 128]);
}

#[test]
fn other_kernels_go_on_after_a_fault() {
    let world = World::simulated(2).unwrap();
    let (kernel, other) = (with_dropped_signal(&world), Kernel::load(&world).unwrap());
    let a = input(&world, 0, [256, 128]);
    let mut c = output(&world, [256, 128]);
    let faulty = kernel.launch(Args { a: &a, c: &mut c }).unwrap();
    launch_and_check(&other, &world, 1, [128, 128]);
    assert!(faulty.wait().is_err());
}

fn refusal(world: &World, a: &Tensor<f32>, c: &mut Tensor<f32>) -> String {
    Kernel::<ReduceScatter>::load(world).unwrap().launch(Args { a, c }).unwrap_err().to_string()
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let world = World::simulated(2).unwrap();
    let other = World::simulated(2).unwrap();
    let a = input(&world, 0, [256, 128]);
    assert_eq!(
        refusal(&world, &a, &mut output(&world, [250, 128])),
        "kernel `reduce_scatter`, argument `c`: expected 128 rows (`m / world`) on rank 0, found 125; here m = 256 (rows \
         of `a`), n = 128 (columns of `a`), world = 2"
    );
    assert_eq!(
        refusal(&world, &a, &mut output(&world, [256, 64])),
        "kernel `reduce_scatter`, argument `c`: expected 128 columns (`n`) on rank 0, found 64; here m = 256 (rows of \
         `a`), n = 128 (columns of `a`), world = 2"
    );
    assert_eq!(
        refusal(&world, &a, &mut output(&other, [256, 128])),
        "kernel `reduce_scatter`, argument `c`: the tensor belongs to another world than the kernel was loaded for"
    );
    let uneven = world.per_rank(|rank| ([256 + rank, 128], vec![0.0; (256 + rank) * 128])).unwrap();
    assert_eq!(
        refusal(&world, &uneven, &mut output(&world, [256, 128])),
        "kernel `reduce_scatter`, argument `a`: expected 256 rows (`m`) on rank 1, found 257; here m = 256 (rows of \
         `a`), n = 128 (columns of `a`), world = 2"
    );
}

#[test]
fn what_was_not_compiled_cannot_be_pinned() {
    let world = World::simulated(2).unwrap();
    let error = Kernel::<ReduceScatter>::load(&world).unwrap().with_tile((128, 256)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `reduce_scatter` was not compiled for a tile of 128×256; there is: f32 64×64"
    );
}

#[test]
fn injections_are_checked() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let refused = |rank, channel, slot| kernel.inject(Injection::DropSignal { rank, channel, slot }).unwrap_err();
    assert!(refused(2, "Part", &[0, 0, 0]).to_string().ends_with("there are 2 ranks"));
    assert!(refused(0, "Parts", &[0, 0, 0]).to_string().ends_with("there is no channel `Parts`; there is: Part"));
    assert!(refused(0, "Part", &[0]).to_string().ends_with("has 3 coordinates, not 1"));
    let late = |rank| kernel.inject(Injection::LateRows { rank, by: Duration::ZERO }).unwrap_err();
    assert!(late(2).to_string().ends_with("there are 2 ranks"));
    assert!(late(0).to_string().ends_with("ranks lend each other none"));
}

#[test]
fn simulated_ranks_refuse_what_only_gpus_have() {
    let world = World::simulated(2).unwrap();
    let error = Tensor::<f32>::from_slices(&world, 64, Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "simulated ranks have no memory that cudarc allocates");
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let a = input(&world, 0, [64, 64]);
    let mut c = output(&world, [64, 64]);
    let no_streams = "kernel `reduce_scatter`: simulated ranks have no CUDA streams; use `launch`";
    assert_eq!(kernel.launch_on(&[], Args { a: &a, c: &mut c }).unwrap_err().to_string(), no_streams);
    // SAFETY: nothing is replayed.
    let error = unsafe { kernel.capture_on(&[], Args { a: &a, c: &mut c }) }.unwrap_err();
    assert_eq!(error.to_string(), no_streams);
    let error = kernel.tune(Args { a: &a, c: &mut c }).unwrap_err().to_string();
    assert!(
        error.ends_with("simulated ranks are not timed, so that there is nothing to tune; tune it on GPUs"),
        "{error}"
    );
}

#[test]
fn a_refused_launch_leaves_those_in_flight_alone() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let a = input(&world, 0, [256, 128]);
    let mut c = output(&world, [256, 128]);
    let launch = kernel.launch(Args { a: &a, c: &mut c }).unwrap();
    assert!(kernel.launch_on(&[], Args { a: &a, c: &mut output(&world, [256, 128]) }).is_err());
    launch.wait().unwrap();
    assert_eq!(c.gather().unwrap(), expected(&world, 0, [256, 128]));
}

#[test]
fn foreign_memory_is_checked_and_used() {
    let world = World::simulated(2).unwrap();
    let [m, n] = [128, 60];
    let mut memory = vec![[0.0f32; 64]; 2 * m];
    for rank in 0..2 {
        for index in 0..m * n {
            memory[rank * m + index / n][index % n] = value(5, rank, index);
        }
    }
    let base = memory.as_mut_ptr() as u64;
    let base = base.next_multiple_of(16);
    assert_eq!(base, memory.as_ptr() as u64, "a vector of this size is aligned well enough");
    let raw = |rank: usize, pitch| RawMatrix { address: base + (rank * m * 256) as u64, rows: m, columns: n, pitch };
    let tensor = |pitch| unsafe { Tensor::<f32>::from_raw(&world, &[raw(0, pitch), raw(1, pitch)]) };
    let problem = tensor(248).unwrap_err().to_string();
    assert_eq!(problem, "the matrix of rank 0: its pitch must be a multiple of 16 bytes, and 248 is not; copy it");
    assert!(tensor(224).unwrap_err().to_string().contains("less than a row's 240"));
    let beyond = RawMatrix { rows: 1 << 31, ..raw(0, 256) };
    let problem = unsafe { Tensor::<f32>::from_raw(&world, &[beyond; 2]) }.unwrap_err().to_string();
    assert!(problem.contains("at most 2³¹ − 1 rows and columns, not 2147483648 × 60"), "{problem}");

    let a = tensor(256).unwrap();
    let c = output(&world, [m, n]);
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    // A tensor of this crate, adopted, is the same memory.
    let lent = [c.raw(0), c.raw(1)];
    let mut adopted = unsafe { Tensor::<f32>::from_raw(&world, &lent) }.unwrap();
    kernel.launch(Args { a: &a, c: &mut adopted }).unwrap().wait().unwrap();
    assert_eq!(c.gather().unwrap(), expected(&world, 5, [m, n]));
}

#[test]
fn graphs_and_single_launches_alternate() {
    let world = World::simulated(3).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let shape = [192, 128];
    let a = input(&world, 0, shape);
    let mut c = output(&world, shape);
    let graph = kernel.graph(5, Args { a: &a, c: &mut c }).unwrap();
    for round in 1..4 {
        graph.launch().unwrap().wait().unwrap();
        launch_and_check(&kernel, &world, round, [192 * round, 64 * round]);
    }
    let replays: Vec<_> = (0..4).map(|_| graph.launch().unwrap()).collect();
    replays.into_iter().for_each(|replay| replay.wait().unwrap());
    assert_eq!(c.gather().unwrap(), expected(&world, 0, shape));
}

#[test]
fn a_graph_takes_arguments_in_turns() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let shape = [256, 128];
    let inputs: Vec<_> = (0..3).map(|round| input(&world, round, shape)).collect();
    let mut outputs: Vec<_> = (0..3).map(|_| output(&world, shape)).collect();
    let arguments = |(a, c)| Args { a, c };
    let graph = kernel.graph_in_turns(7, inputs.iter().zip(&mut outputs).map(arguments)).unwrap();
    graph.launch().unwrap().wait().unwrap();
    for (round, c) in outputs.iter().enumerate() {
        assert_eq!(c.gather().unwrap(), expected(&world, round, shape), "round {round}");
    }
}

#[test]
fn turns_of_different_shapes_are_refused() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let shapes = [[256, 128], [256, 192]];
    let inputs = shapes.map(|shape| input(&world, 0, shape));
    let mut outputs = shapes.map(|shape| output(&world, shape));
    let arguments = |(a, c)| Args { a, c };
    let error = kernel.graph_in_turns(2, inputs.iter().zip(&mut outputs).map(arguments)).unwrap_err().to_string();
    assert!(error.ends_with("arguments 1 differ: expected [256, 128], found [256, 192]"), "{error}");
    let none: [Args; 0] = [];
    assert!(
        kernel.graph_in_turns(2, none).unwrap_err().to_string().ends_with("a graph needs arguments to launch with")
    );
}

#[test]
fn a_graph_works_again_after_a_fault() {
    let world = World::simulated(2).unwrap();
    let kernel = with_dropped_signal(&world);
    let shape = [256, 128];
    let (a, other) = (input(&world, 0, shape), input(&world, 1, shape));
    let (mut c, mut d) = (output(&world, shape), output(&world, shape));
    let graph = kernel.graph(2, Args { a: &a, c: &mut c }).unwrap();
    assert!(kernel.launch(Args { a: &other, c: &mut d }).unwrap().wait().is_err());
    graph.launch().unwrap().wait().unwrap();
    assert_eq!(c.gather().unwrap(), expected(&world, 0, shape));
}

/// The next replay is harmed, and no later one.
#[test]
fn a_graph_does_the_harm_that_was_injected() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap().with_deadline(Duration::from_millis(200));
    let shape = [256, 128];
    let a = input(&world, 0, shape);
    let mut c = output(&world, shape);
    let graph = kernel.graph(1, Args { a: &a, c: &mut c }).unwrap();
    for _ in 0..2 {
        graph.launch().unwrap().wait().unwrap();
        kernel.inject(Injection::DropSignal { rank: 1, channel: "Part", slot: &[1, 0, 1] }).unwrap();
        let Err(Error::Fault(fault)) = graph.launch().unwrap().wait() else { panic!("nothing was dropped") };
        assert_eq!((fault.kind, fault.channel, &*fault.slot), (FaultKind::MissingSignal, Some("Part"), &[1, 0, 1][..]));
        graph.launch().unwrap().wait().unwrap();
    }
    kernel.inject(Injection::DropSignal { rank: 1, channel: "Part", slot: &[1, 9, 1] }).unwrap();
    let error = graph.launch().unwrap_err().to_string();
    assert!(error.ends_with("slot [1, 9, 1] of channel `Part` is not among the [2, 2, 2] of this launch"), "{error}");
    graph.launch().unwrap().wait().unwrap();
    drop(graph);
    assert_eq!(c.gather().unwrap(), expected(&world, 0, shape));
}

#[test]
fn a_launch_can_be_recorded() {
    let world = World::simulated(2).unwrap();
    let kernel = Kernel::<ReduceScatter>::load(&world).unwrap();
    let a = input(&world, 0, [512, 256]);
    let mut c = output(&world, [512, 256]);
    let timeline = kernel.record(Args { a: &a, c: &mut c }).unwrap();
    let tiles = 4 * 4;
    for rank in 0..2 {
        let (sent, overlapped) = timeline.sends(rank);
        assert_eq!(sent, tiles);
        assert!(overlapped > tiles / 2, "peers come first: {timeline}");
    }
    assert_eq!(timeline.to_string().matches("CTA").count(), 4);

    let arrows = timeline.arrows();
    assert_eq!(arrows.len(), 2 * tiles, "whatever was sent was received");
    assert!(arrows.iter().all(|(send, ready)| send.rank != ready.rank && send.at <= ready.at));
    let trace: serde_json::Value = serde_json::from_str(&timeline.to_chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for end in ["s", "f"] {
        assert_eq!(events.iter().filter(|event| event["ph"] == end).count(), arrows.len());
    }
    assert!(timeline.to_svg().contains("rank 1"));
}

#[test]
fn worlds_have_one_to_eight_ranks() {
    for ranks in [0, 9] {
        let error = World::simulated(ranks).unwrap_err().to_string();
        assert_eq!(error, format!("a world has 1 to 8 ranks, not {ranks}"));
    }
}

#[test]
fn a_missing_driver_is_an_error() {
    match World::open() {
        Ok(world) => assert!(world.ranks() > 0),
        Err(error) => assert!(error.to_string().contains("GPU"), "{error}"),
    }
}
