//! The structure of PTX: that each rule catches what it is for, and that the ready-made kernels keep them all.

use std::collections::HashMap;
use std::env;

use entwine::spec::{KernelSpec, Target};
use entwine_build::ptx::{Function, Module};
use entwine_kernels::probes::{put_to_next, read_once, to_and_fro};
use entwine_kernels::{
    all_gather_gemm, embedding_all_to_all, gemm, gemm_all_reduce, gemm_all_to_all, gemm_reduce_scatter,
    gemv_all_reduce, moe_dispatch_gemm, moe_gemm_combine, moe_layer,
};
use entwine_tests::kernels::{words_bf16, words_f16, words_f32, words_i32, words_i64, words_u32, words_u64};
use entwine_tests::ptx::{
    cta_barriers, has_roles, instructions_like, matrix_instructions, synchronized_instructions, violations,
};

/// Those that multiply.
const KERNELS: [&KernelSpec; 9] = [
    &gemm::SPEC,
    &gemm_reduce_scatter::SPEC,
    &gemm_all_reduce::SPEC,
    &all_gather_gemm::SPEC,
    &gemm_all_to_all::SPEC,
    &gemv_all_reduce::SPEC,
    &moe_dispatch_gemm::SPEC,
    &moe_gemm_combine::SPEC,
    &moe_layer::SPEC,
];

/// Those whose threads have one role.
const STREAMING: [&KernelSpec; 4] =
    [&embedding_all_to_all::SPEC, &put_to_next::SPEC, &to_and_fro::SPEC, &read_once::SPEC];

const SOUND: &str = "
.visible .entry sound(
\t.param .b64 sound_param_0
)
.maxntid 384
.minnctapersm 1
{
\t.reg .pred \t%p<2>;
\tbar.sync \t0;
\t// begin inline asm
\tld.acquire.sys.global.u32 %r1, [%rd1];
\t// end inline asm
\t// begin inline asm
\tfence.proxy.async.global;
\t// end inline asm
\t// begin inline asm
\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];
\t// end inline asm
\t// begin inline asm
\t{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r2; selp.u32 %r3, 1, 0, p; }
\t// end inline asm
$L__BB0_1:
\t@%p1 bra \t$L__BB0_1;
\tcp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;
\tcp.async.bulk.wait_group 0;
\tfence.acq_rel.sys;
\tst.relaxed.sys.global.u32 [%rd1], %r1;
\tld.volatile.shared.u32 %r4, [%r5];
\tatom.acq_rel.gpu.global.add.u32 %r1, [%rd1], %r2;
\tret;
}
";

/// What is said of the sound entry once `from` is replaced by `to`.
fn said_after(from: &str, to: &str) -> String {
    assert!(SOUND.contains(from));
    violations(&Module::from_text(SOUND.replace(from, to)), Target::Sm90a).join("\n")
}

/// An entry of the one role.
const SOUND_TOGETHER: &str = "
.visible .entry together(
\t.param .b64 together_param_0
)
.maxntid 256
.minnctapersm 1
{
\tbar.sync \t0;
\tld.acquire.sys.global.u32 %r1, [%rd1];
\tbar.sync \t0;
\tcp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r2;
\tcp.async.wait_group 0;
\tbar.sync \t0;
\tst.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
\tbar.sync \t0;
\tfence.acq_rel.sys;
\tst.relaxed.sys.global.u32 [%rd1], %r1;
\tret;
}
";

/// As [`said_after`], of the one role's entry.
fn said_together_after(from: &str, to: &str) -> String {
    assert!(SOUND_TOGETHER.contains(from));
    violations(&Module::from_text(SOUND_TOGETHER.replace(from, to)), Target::Sm80).join("\n")
}

#[test]
fn a_sound_entry_violates_nothing() {
    assert_eq!(violations(&Module::from_text(SOUND), Target::Sm90a), [""; 0]);
    assert_eq!(violations(&Module::from_text(SOUND_TOGETHER), Target::Sm80), [""; 0]);
}

#[test]
fn code_for_ampere_does_without_hopper() {
    for instruction in
        ["wgmma.fence.sync.aligned", "mbarrier.init.shared::cta.b64 [%r1], 1", "cp.async.bulk.commit_group"]
    {
        assert!(said_together_after("cp.async.wait_group 0", instruction).contains("Hopper"), "{instruction}");
    }
}

#[test]
fn one_role_releases_and_acquires_with_all_threads() {
    assert!(said_together_after("\tbar.sync \t0;\n\tfence", "\t@%p1 bar.sync \t0;\n\tfence").contains("pass by"));
    assert!(said_together_after("fence.acq_rel.sys", "membar.cta").contains("without a release"));
    assert!(said_together_after("ld.acquire.sys.global", "ld.relaxed.sys.global").contains("without an acquire"));
    assert!(said_together_after("fence.acq_rel.sys", "fence.acq_rel.gpu").contains("another GPU's threads"));
}

#[test]
fn a_barrier_copied_into_a_branch_is_counted() {
    assert!(
        said_after("\tfence.proxy.async.global;", "\t@%p1 bar.sync 0;\n\tfence.proxy.async.global;")
            .contains("2 CTA barriers")
    );
}

#[test]
fn signals_reach_every_gpu() {
    for (from, to) in [
        ("ld.acquire.sys.global", "ld.acquire.gpu.global"),
        ("fence.acq_rel.sys", "fence.acq_rel.gpu"),
        ("st.relaxed.sys.global", "st.release.gpu.global"),
        ("st.relaxed.sys.global", "red.release.gpu.global.add"),
    ] {
        assert!(said_after(from, to).contains("does not reach another GPU's threads"), "{to}");
    }
}

#[test]
fn symmetric_memory_is_read_by_no_weak_load() {
    assert!(said_after("ld.acquire.sys.global", "ld.global.nc").contains("may read what another rank writes"));
    assert!(said_after("ld.acquire.sys.global", "ld.volatile.global").contains("not volatile"));
}

#[test]
fn a_bulk_store_is_complete_and_released_before_its_signal() {
    let unfinished = said_after("cp.async.bulk.wait_group 0", "cp.async.bulk.wait_group.read 0");
    assert!(unfinished.contains("before they are complete"));
    assert!(said_after("fence.acq_rel.sys", "membar.cta").contains("without a release"));
}

#[test]
fn a_bulk_load_follows_an_acquire_and_a_proxy_fence() {
    assert!(said_after("ld.acquire.sys.global", "ld.relaxed.sys.global").contains("without an acquire"));
    assert!(said_after("fence.proxy.async.global", "fence.proxy.async.shared::cta").contains("without a proxy fence"));
}

#[test]
fn an_entry_has_its_launch_bounds() {
    assert!(said_after(".maxntid 384\n", "").contains("no `.maxntid`"));
}

/// The PTX of the ready-made kernels for each target, without a timeline or with one; none where there is no compiler for
/// the device, and none is required.
fn kernels(timeline: bool) -> Vec<(Target, &'static KernelSpec, Module)> {
    let codes =
        KERNELS.iter().chain(&STREAMING).flat_map(|kernel| kernel.codes.iter().map(move |code| (*kernel, code)));
    let codes = codes.filter(|(_, code)| code.timeline == timeline);
    let modules: Vec<_> = codes.map(|(kernel, code)| (code.target, kernel, Module::from_text(code.ptx))).collect();
    if modules.is_empty() {
        skip("the kernels were built without PTX");
    }
    modules
}

/// Leaves a check out, unless it is required.
fn skip(reason: &str) {
    assert!(env::var_os("ENTWINE_REQUIRE_DEVICE").is_none(), "{reason}: `cargo xtask test` installs what is missing");
    eprintln!("skipped: {reason}");
}

#[test]
fn every_variant_of_a_kernel_has_a_sound_entry() {
    for (target, kernel, module) in [false, true].into_iter().flat_map(kernels) {
        let with_code: Vec<_> = kernel.variants.iter().filter(|variant| target.has_tile(variant.tile)).collect();
        for variant in &with_code {
            assert!(module.entries().any(|entry| entry.name == variant.entry), "{}", variant.entry);
        }
        assert_eq!(module.entries().count(), with_code.len());
        assert_eq!(violations(&module, target), [""; 0]);
        assert_eq!(module.functions_with_local_memory().next(), None);
    }
}

/// Entries of a log are the only numbers that code for Hopper whose threads have roles stores four at a time.
#[test]
fn what_is_not_recorded_leaves_no_trace() {
    let hopper = |timeline| kernels(timeline).into_iter().filter(|(target, ..)| *target == Target::Sm90a);
    let logs = |module: &Module| {
        let entries = module.entries().filter(has_roles);
        entries.map(|entry| entry.text.matches("st.global.v4.u32").count()).collect::<Vec<_>>()
    };
    assert!(hopper(false).flat_map(|(.., module)| logs(&module)).all(|count| count == 0));
    assert!(hopper(true).flat_map(|(.., module)| logs(&module)).all(|count| count > 0));
}

/// One lane of a warp notes events. Had the compiler copied into both arms of that branch what all lanes must come to together, such as
/// `stmatrix`, they would wait for each other for ever.
#[test]
fn what_is_recorded_keeps_lanes_together() {
    let counts = |timeline| {
        let modules = kernels(timeline).into_iter().filter(|(target, ..)| *target == Target::Sm90a);
        let counts = modules.flat_map(|(.., module)| {
            let entries = module.entries().filter(has_roles);
            entries.map(|entry| (entry.name.to_owned(), synchronized_instructions(&entry))).collect::<Vec<_>>()
        });
        counts.collect::<HashMap<_, _>>()
    };
    let [plain, recorded] = [false, true].map(counts);
    assert_eq!(plain, recorded);
}

/// Case 27: of each type of words, every operation is there in every order and at every scope that it is written with.
#[test]
fn operations_on_words_have_their_order_and_scope() {
    const ORDERS: [&str; 4] = [".relaxed", ".acquire", ".release", ".acq_rel"];
    let whole = |kind: &str, bits: &str| {
        let changes = [format!("add.u{}", &bits[1..]), format!("min.{kind}"), format!("max.{kind}")];
        let of_bits = ["and", "or", "xor", "exch", "cas"].map(|operation| format!("{operation}.{bits}"));
        changes.into_iter().chain(of_bits).collect::<Vec<_>>()
    };
    let float = |add: &str, bits: &str| vec![format!("add.{add}"), format!("cas.{bits}")];
    let kernels: [(&KernelSpec, &str, Vec<String>); 7] = [
        (&words_u32::SPEC, "b32", whole("u32", "b32")),
        (&words_i32::SPEC, "b32", whole("s32", "b32")),
        (&words_u64::SPEC, "b64", whole("u64", "b64")),
        (&words_i64::SPEC, "b64", whole("s64", "b64")),
        (&words_f32::SPEC, "b32", float("f32", "b32")),
        (&words_f16::SPEC, "b16", float("noftz.f16", "b16")),
        (&words_bf16::SPEC, "b16", float("noftz.bf16", "b16")),
    ];
    for (kernel, bits, changes) in kernels {
        for code in kernel.codes {
            let module = Module::from_text(code.ptx);
            let entry = module.entries().find(|entry| entry.name == kernel.variants[0].entry).unwrap();
            let has = |instruction: String| {
                let found = !instructions_like(&entry, &instruction).is_empty();
                assert!(found, "`{}` for {} has no `{instruction}`", kernel.name, code.target.name());
            };
            for scope in [".cta", ".gpu", ".sys"] {
                for order in [".relaxed", ".acquire"] {
                    has(format!("ld{order}{scope}.global.{bits}"));
                }
                for order in [".relaxed", ".release"] {
                    has(format!("st{order}{scope}.global.{bits}"));
                }
                // GPUs before Hopper add to a bf16 by comparing.
                let emulated = |change: &&String| code.target == Target::Sm80 && change.ends_with(".bf16");
                for change in changes.iter().filter(|change| !emulated(change)) {
                    ORDERS.iter().for_each(|order| has(format!("atom{order}{scope}.global.{change}")));
                }
            }
        }
    }
    if words_u32::SPEC.codes.is_empty() {
        skip("the kernels were built without PTX");
    }
}

/// The set-up, taking the buffer for the product, two of its steps (before the loop and in it), taking the buffer for
/// the tile, and handing it on. More of them mean that the compiler copied one into both arms of a branch.
#[test]
fn the_product_alone_has_six_barriers_on_ampere() {
    for (.., module) in kernels(false).into_iter().filter(|(target, ..)| *target == Target::Sm80) {
        for entry in
            module.entries().filter(|entry| gemm::SPEC.variants.iter().any(|variant| variant.entry == entry.name))
        {
            assert_eq!(cta_barriers(&entry), 6, "{}", entry.name);
        }
    }
}

/// What the assembler makes of them, `cargo xtask ptx` checks.
#[test]
fn every_variant_of_a_product_multiplies() {
    for (target, kernel, module) in [false, true].into_iter().flat_map(kernels) {
        let should_multiply = KERNELS.iter().any(|other| other.name == kernel.name);
        for variant in kernel.variants.iter().filter(|variant| should_multiply && target.has_tile(variant.tile)) {
            let multiplies = |entry: &Function<'_>| entry.name == variant.entry && matrix_instructions(entry) > 0;
            assert!(module.entries().any(|entry| multiplies(&entry)), "{} for {}", variant.entry, target.name());
        }
    }
}
