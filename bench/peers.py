"""Times PyTorch's fused symmetric-memory operations, and torch.mm alone, on all GPUs of this machine.

The records have entwine-bench's keys; `entwine-bench table` and `plot` join them to its own records.
usage: python3 peers.py FILE.json [--op OP]... [--model MODEL]... [--rows M]... [--repeats N]
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

MODELS = {"llama7b": (4096, 11008), "llama70b": (8192, 28672), "gpt3": (12288, 49152)}
OPERATIONS = ["gemm_reduce_scatter", "all_gather_gemm"]
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
    hidden, inner = MODELS[model]
    return (rows, inner // world, hidden) if op == "all_gather_gemm" else (rows, hidden, inner // world)


def operands(op, m, n, k, world):
    """Sets of a and b (as stored, n × k) that calls take in turns, so that none stays in the cache."""
    size = 2 * (m + n) * k
    rows = m // world if op == "all_gather_gemm" else m
    random = lambda rows: torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) * 0.5
    return [(random(rows), random(n)) for _ in range(-(-2 * CACHE // size) if size < CACHE else 1)]


def contestants(op, group, whole):
    """The fused operation, and the product alone, of one set of operands."""
    if op == "gemm_reduce_scatter":
        fused = lambda a, b: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.t(), "sum", 0, group)
        return fused, lambda a, b: torch.mm(a, b.t())
    fused = lambda a, b: torch.ops.symm_mem.fused_all_gather_matmul(a, [b.t()], 0, group, return_A=False)[1][0]
    return fused, lambda a, b: torch.mm(whole, b.t())


def unfused(op, a, b, whole, world):
    if op == "gemm_reduce_scatter":
        product = torch.mm(a, b.t())
        out = torch.empty(product.shape[0] // world, product.shape[1], device="cuda", dtype=a.dtype)
        dist.reduce_scatter_tensor(out, product)
        return out
    dist.all_gather_into_tensor(whole, a)
    return torch.mm(whole, b.t())


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


def measure(op, model, rows, options, rank, world):
    m, n, k = shape(op, model, rows, world)
    sets = operands(op, m, n, k, world)
    whole = torch.randn(m, k, device="cuda", dtype=torch.bfloat16) * 0.5
    calls = contestants(op, dist.group.WORLD.group_name, whole)
    expected, found = unfused(op, *sets[0], whole, world).float(), calls[0](*sets[0]).float()
    error = slowest(torch.nan_to_num((found - expected).norm() / expected.norm(), nan=torch.inf).item())
    assert error <= TOLERANCE, f"{op}, {model}, {rows} rows: off by {error}"
    del expected, found
    sizes = []
    for call in calls:
        batch(call, sets, len(sets))
        sizes.append(-(-max(1, int(BATCH_US / batch(call, sets, 2 * len(sets)))) // len(sets)) * len(sets))
    for regime, idle, warm_up in [("burst", 0.05, 1), ("sustained", 0.0, 2)]:
        times = [[], []]
        for repeat in range(warm_up + options.repeats):
            for turn in range(2):
                index = (repeat + turn) % 2
                time.sleep(idle)
                us = batch(calls[index], sets, sizes[index])
                if repeat >= warm_up:
                    times[index].append(us)
        torch_us, gemm_us = map(statistics.median, times)
        yield dict(
            op=op, model=model, dtype="bf16", world=world, m=m, n=n, k=k, variant="torch.ops.symm_mem", regime=regime,
            timing="eager", ours_us=None, gemm_us=gemm_us, serial_us=None, torch_us=torch_us, limit_us=None,
            fraction=None, efficiency=None, spread=(max(times[0]) - min(times[0])) / torch_us, link_gbps=None,
            error=error, date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            device=torch.cuda.get_device_name(), driver=f"CUDA {torch.version.cuda}",
            libraries=f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}",
        )


def run(rank, world, options):
    threading.Thread(target=watch, daemon=True).start()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    if hasattr(symm_mem, "enable_symm_mem_for_group"):  # newer releases do without
        symm_mem.enable_symm_mem_for_group(dist.group.WORLD.group_name)
    torch.manual_seed(rank)
    records = []
    for op in options.op or OPERATIONS:
        for model in options.model or MODELS:
            for rows in options.rows or [512, 2048, 8192]:
                for record in measure(op, model, rows, options, rank, world):
                    records.append(record)
                    if rank == 0:
                        print(op, model, rows, record["regime"], f"{record['torch_us'] / record['gemm_us']:.2f}", flush=True)
                if rank == 0:
                    with open(options.file, "w") as file:
                        json.dump(records, file, indent=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--op", action="append", choices=OPERATIONS)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--rows", action="append", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    mp.spawn(run, (torch.cuda.device_count(), options), torch.cuda.device_count())
