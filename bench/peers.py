"""Times PyTorch's fused symmetric-memory operations, cuBLASMp's if it is given, and torch.mm alone, on all GPUs.

The records have entwine-bench's keys; `entwine-bench table` and `plot` join them to its own records.
"""

import argparse
import datetime
import json
import os
import statistics
import threading
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as mp

import cublasmp

MODELS = {"llama7b": (4096, 11008), "llama70b": (8192, 28672), "gpt3": (12288, 49152)}
OPERATIONS = ["gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm"]
CACHE = 60_000_000
BATCH_US = 12_000
PATIENCE_S = 60
TOLERANCE = 0.01

progress = threading.Event()


def watch():
    while progress.wait(PATIENCE_S):
        progress.clear()
    print("gave up: no progress for too long", flush=True)
    os._exit(1)


def shape(op, model, rows, world):
    """m, n, k of a rank's product."""
    hidden, inner = MODELS[model]
    return (rows, inner // world, hidden) if op == "all_gather_gemm" else (rows, hidden, inner // world)


def random(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.5


def operands(op, m, n, k, world):
    """Sets of a and b (as stored, n × k) that calls take in turns, so that none stays in the cache."""
    size = 2 * (m + n) * k
    rows = m // world if op == "all_gather_gemm" else m
    return [(random(rows, k), random(n, k)) for _ in range(-(-2 * CACHE // size) if size < CACHE else 1)]


def unfused(op, a, b, whole, world):
    if op == "all_gather_gemm":
        dist.all_gather_into_tensor(whole, a)
        return torch.mm(whole, b.t())
    product = torch.mm(a, b.t())
    if op == "gemm_all_reduce":
        dist.all_reduce(product)
        return product
    out = torch.empty(product.shape[0] // world, product.shape[1], device="cuda", dtype=a.dtype)
    dist.reduce_scatter_tensor(out, product)
    return out


def torch_fused(op):
    """PyTorch's fused operation, if it has one."""
    group = dist.group.WORLD.group_name
    if op == "gemm_reduce_scatter":
        return lambda a, b: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.t(), "sum", 0, group)
    if op == "all_gather_gemm":
        return lambda a, b: torch.ops.symm_mem.fused_all_gather_matmul(a, [b.t()], 0, group, return_A=False)[1][0]
    return None


def cublasmp_fused(library, op, rank_shape, sets):
    """cuBLASMp's product by the fastest of its algorithms, if there is any."""
    fastest, best_us = None, float("inf")
    for algorithm in cublasmp.ALGORITHMS:
        try:
            product = library.product(op, rank_shape, algorithm)
            product(*sets[0])
        except cublasmp.Unsupported as reason:
            print(f"cuBLASMp, algorithm {algorithm}: {reason}", flush=True)
            continue
        us = batch(product, sets, 4 * len(sets))
        slower = product
        if us < best_us:
            slower, fastest, best_us = fastest, product, us
        if slower:
            slower.close()
    return fastest


def slowest(value):
    """The largest of all ranks' values."""
    value = torch.tensor([value], device="cuda", dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def batch(call, sets, calls):
    """µs per call of calls back to back, of the slowest rank."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    start.record()
    for index in range(calls):
        call(*sets[index % len(sets)])
    end.record()
    torch.cuda.synchronize()
    progress.set()
    return slowest(1e3 * start.elapsed_time(end) / calls)


def batch_size(call, sets):
    batch(call, sets, len(sets))
    calls = max(1, int(BATCH_US / batch(call, sets, 2 * len(sets))))
    return -(-calls // len(sets)) * len(sets)


def measure(op, model, rows, options, library, world):
    """The record of each regime."""
    rank_shape = m, n, k = shape(op, model, rows, world)
    sets = operands(op, m, n, k, world)
    whole = random(m, k)
    peers = {"torch_us": torch_fused(op), "cublasmp_us": library and cublasmp_fused(library, op, rank_shape, sets)}
    peers = {key: call for key, call in peers.items() if call}
    expected, error = unfused(op, *sets[0], whole, world).float(), 0.0
    for key, call in peers.items():
        difference = call(*sets[0]).float() - expected
        error = max(error, slowest(torch.nan_to_num(difference.norm() / expected.norm(), nan=torch.inf).item()))
        assert error <= TOLERANCE, f"{key} of {op}, {model}, {rows} rows: off by {error}"
        del difference
    del expected
    alone = lambda a, b: torch.mm(whole if op == "all_gather_gemm" else a, b.t())
    contestants = [(key, call, batch_size(call, sets)) for key, call in {"gemm_us": alone, **peers}.items()]
    for regime, idle, warm_up in [("burst", 0.05, 1), ("sustained", 0.0, 2)]:
        times = {key: [] for key, _, _ in contestants}
        for repeat in range(warm_up + options.repeats):
            for turn in range(len(contestants)):
                key, call, calls = contestants[(repeat + turn) % len(contestants)]
                time.sleep(idle)
                us = batch(call, sets, calls)
                if repeat >= warm_up:
                    times[key].append(us)
        medians = {key: statistics.median(us) for key, us in times.items()}
        libraries = [f"PyTorch {torch.__version__}", f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"]
        libraries += [f"cuBLASMp {library.version()}"] if library else []
        yield dict(
            op=op, model=model, dtype="bf16", world=world, m=m, n=n, k=k, variant="peers", regime=regime,
            timing="eager", ours_us=None, serial_us=None, torch_us=None, limit_us=None, fraction=None,
            efficiency=None, spread=max((max(us) - min(us)) / medians[key] for key, us in times.items()),
            link_gbps=None, error=error, date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            device=torch.cuda.get_device_name(), driver=f"CUDA {torch.version.cuda}", libraries=", ".join(libraries),
        ) | medians
    if "cublasmp_us" in peers:
        peers["cublasmp_us"].close()


def run(rank, world, options):
    threading.Thread(target=watch, daemon=True).start()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    if hasattr(symm_mem, "enable_symm_mem_for_group"):  # newer releases do without
        symm_mem.enable_symm_mem_for_group(dist.group.WORLD.group_name)
    library = cublasmp.CublasMp(options.cublasmp, rank, world) if options.cublasmp else None
    torch.manual_seed(rank)
    records = []
    for op in options.op or (OPERATIONS if library else [op for op in OPERATIONS if torch_fused(op)]):
        for model in options.model or MODELS:
            for rows in options.rows or [512, 2048, 8192]:
                for record in measure(op, model, rows, options, library, world):
                    records.append(record)
                    if rank == 0:
                        times = {key: round(us, 1) for key, us in record.items() if key.endswith("_us") and us}
                        print(op, model, rows, record["regime"], times, flush=True)
                if rank == 0:
                    with open(options.file, "w") as file:
                        json.dump(records, file, indent=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the JSON file to write")
    parser.add_argument("--op", action="append", choices=OPERATIONS)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--rows", action="append", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cublasmp", help="path of libcublasmp.so.0, to time it too")
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    mp.spawn(run, (torch.cuda.device_count(), options), torch.cuda.device_count())
