"""Times PyTorch's symmetric-memory operations, or cuBLASMp's, beside torch.mm alone, on all GPUs.

The records have entwine-bench's keys; `entwine-bench table` and `plot` join them to its own records.
"""

import argparse
import ctypes
import datetime
import json
import os
import statistics
import threading
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("NCCL_GRAPH_MIXING_SUPPORT", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("CUBLASMP_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as mp

import cublasmp

MODELS = {"llama7b": (4096, 11008), "llama70b": (8192, 28672), "gpt3": (12288, 49152)}
OPERATIONS = ["gemm_reduce_scatter", "all_gather_gemm", "gemm_all_reduce"]
CACHE = 60_000_000
BATCH_US = 12_000
MOST_IN_GRAPH, MOST_QUEUED = 512, 64
# Idle seconds before a batch, replays of it, and repeats that only warm up.
REGIMES = {"burst": (0.05, 1, 0), "sustained": (0.0, 5, 2)}
# Clock cycles: for which a GPU waits until a graph, or single calls, are queued; by which a rank is late in a check.
QUEUEING, QUEUEING_CALLS, LATE = 1_000_000, 12_000_000, 200_000
CHECKS = 4
PATIENCE_S = 30
TOLERANCE = 0.01

progress = threading.Event()


def watch():
    while progress.wait(PATIENCE_S):
        progress.clear()
    print("gave up: no progress for too long", flush=True)
    os._exit(1)


class Operands:
    """What the calls of one operation and shape work on."""

    def __init__(self, op, model, rows, world):
        hidden, inner = MODELS[model]
        gathers = op == "all_gather_gemm"
        self.op, self.world = op, world
        self.m, self.n, self.k = (rows, inner // world, hidden) if gathers else (rows, hidden, inner // world)
        size = 2 * (self.m + self.n) * self.k
        own_rows = rows // world if gathers else rows
        # Sets of a and b (as stored, n × k) that calls take in turns, so that none stays in the cache.
        sets = -(-2 * CACHE // size) if size < CACHE else 1
        self.sets = [(random(own_rows, self.k), random(self.n, self.k)) for _ in range(sets)]
        self.whole = random(rows, self.k) if gathers else None

    def shape(self):
        return self.m, self.n, self.k

    def close(self):
        for a, _ in self.sets:
            getattr(a, "close", lambda: None)()

    def alone(self, a, b):
        """The product that nothing is exchanged for."""
        return torch.mm(a if self.whole is None else self.whole, b.t())

    def unfused(self, a, b):
        if self.op == "all_gather_gemm":
            whole = torch.empty_like(self.whole)
            dist.all_gather_into_tensor(whole, a)
            return torch.mm(whole, b.t())
        product = torch.mm(a, b.t())
        if self.op == "gemm_all_reduce":
            dist.all_reduce(product)
            return product
        out = torch.empty(self.m // self.world, self.n, device="cuda", dtype=a.dtype)
        dist.reduce_scatter_tensor(out, product)
        return out


class Barrier:
    """Lets all GPUs go on at once."""

    def __init__(self):
        self.memory = symm_mem.empty(1, dtype=torch.int32, device=torch.device("cuda", torch.cuda.current_device()))
        self.handle = symm_mem.rendezvous(self.memory, dist.group.WORLD)

    def wait(self):
        self.handle.barrier(channel=0)


class Contestant:
    """Something that is timed: as replays of a graph, if it may be and can be captured, or call by call."""

    def __init__(self, name, call, operands, barrier, replays=True):
        self.name, self.call, self.operands, self.barrier, self.replays = name, call, operands, barrier, replays
        self.graph, self.calls = None, 0

    def enqueue(self, calls):
        for index in range(calls):
            result = self.call(*self.operands.sets[index % len(self.operands.sets)])
        return result

    def capture(self, calls):
        """A graph of so many calls, and the last one's result; none if any rank can't capture them."""
        graph, result, failure = torch.cuda.CUDAGraph(), None, None
        meet()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                result = self.enqueue(calls)
        except Exception as error:
            failure = error
        torch.cuda.synchronize()
        if slowest(float(failure is not None)):
            print(f"{self.name} can't be captured: {failure or 'another rank failed'}", flush=True)
            return None, None
        return graph, result

    def prepare(self, checked=True):
        """Makes a batch of it. Returns the error of its results, if they are to be checked."""
        error = self.check(self.call) if checked else 0.0
        one = self.call
        graph, result = self.capture(1) if self.replays else (None, None)
        if graph:
            def one(*_):
                graph.replay()
                return result

            # A replay may find flags and counts as the last one left them: that must not pass for this one's.
            replayed = self.check(one) if checked else 0.0
            if replayed > TOLERANCE:
                print(f"{self.name} can't be replayed: off by {replayed}", flush=True)
                graph, one = None, self.call
            else:
                error = max(error, replayed)
        sets = len(self.operands.sets)
        most = MOST_IN_GRAPH if graph else MOST_QUEUED
        calls = min(max(1, int(BATCH_US / self.batch(one, 2 * sets))), most)
        self.calls = -(-calls // sets) * sets
        captured, graph, one, result = bool(graph), None, None, None
        if captured:
            self.graph, _ = self.capture(self.calls)
        self.time(1)
        return error

    def check(self, call):
        """The largest error over inputs that change, with one rank late after the other."""
        a, b = self.operands.sets[0]
        worst = 0.0
        for turn in range(CHECKS):
            a.normal_(std=0.5)
            expected = self.operands.unfused(a, b).float()
            meet()
            if turn % self.operands.world == dist.get_rank():
                torch.cuda._sleep(LATE)
            difference = call(a, b).float() - expected
            error = torch.nan_to_num(difference.norm() / expected.norm(), nan=torch.inf).item()
            worst = max(worst, slowest(error))
        return worst

    def batch(self, call, calls, replays=1):
        """µs per call, of the slowest rank. The GPUs wait until everything is queued."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        meet()
        torch.cuda._sleep(QUEUEING if self.graph else QUEUEING_CALLS)
        self.barrier.wait()
        start.record()
        for _ in range(replays):
            for index in range(calls):
                call(*self.operands.sets[index % len(self.operands.sets)])
        end.record()
        torch.cuda.synchronize()
        progress.set()
        return slowest(1e3 * start.elapsed_time(end) / (calls * replays))

    def time(self, replays):
        if self.graph:
            return self.batch(lambda *_: self.graph.replay(), 1, replays) / self.calls
        return self.batch(self.call, self.calls, replays)

    def close(self):
        self.graph = None
        getattr(self.call, "close", lambda: None)()


def random(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.5


def meet():
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def slowest(value):
    """The largest of all ranks' values."""
    value = torch.tensor([value], device="cuda", dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def pytorch(operands, barrier):
    """PyTorch's operations: fused, or, where it has none, those that exchange a product in symmetric memory."""
    group = dist.group.WORLD.group_name
    if operands.op == "gemm_reduce_scatter":
        calls = [lambda a, b: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.t(), "sum", 0, group)]
    elif operands.op == "all_gather_gemm":
        fused = torch.ops.symm_mem.fused_all_gather_matmul
        calls = [lambda a, b: fused(a, [b.t()], 0, group, return_A=False)[1][0]]
    else:
        device = torch.device("cuda", torch.cuda.current_device())
        product = symm_mem.empty(operands.m, operands.n, dtype=torch.bfloat16, device=device)
        symm_mem.rendezvous(product, dist.group.WORLD)

        def reduced(reduce):
            def call(a, b):
                torch.mm(a, b.t(), out=product)
                return reduce(product, "sum", group)

            return call

        calls = map(reduced, [torch.ops.symm_mem.one_shot_all_reduce, torch.ops.symm_mem.two_shot_all_reduce_])
    return [Contestant("PyTorch's operation", call, operands, barrier) for call in calls]


def of_cublasmp(library, operands, barrier):
    """cuBLASMp's algorithms."""
    if operands.op == "all_gather_gemm":
        operands.sets = [(library.registered(a), b) for a, b in operands.sets]
    contestants = []
    for algorithm in cublasmp.ALGORITHMS:
        product = None
        try:
            product = library.product(operands.op, operands.shape(), algorithm)
            product(*operands.sets[0])
        except cublasmp.Unsupported as reason:
            print(f"cuBLASMp, algorithm {algorithm}: {reason}", flush=True)
            if product:
                product.close()
            continue
        # Calls that are captured don't wait for each other when they are replayed: results are wrong if a rank is late.
        contestants.append(Contestant(f"cuBLASMp's algorithm {algorithm}", product, operands, barrier, replays=False))
    return contestants


def fastest(contestants):
    """The fastest of those that are right, and its error."""
    best, best_us, best_error = None, float("inf"), None
    for contestant in contestants:
        error = contestant.prepare()
        us = min(contestant.time(1) for _ in range(2))
        if error > TOLERANCE:
            print(f"{contestant.name} is wrong, off by {error}", flush=True)
        elif us < best_us:
            contestant, best, best_us, best_error = best, contestant, us, error
        if contestant:
            contestant.close()
    return best, best_error


def measure(op, model, rows, options, library, barrier, world):
    """The record of each regime."""
    operands = Operands(op, model, rows, world)
    peers = of_cublasmp(library, operands, barrier) if library else pytorch(operands, barrier)
    peer, error = fastest(peers)
    if peer is None:
        print(f"{op}, {model}, {rows} rows: there is nothing to time", flush=True)
        return
    contestants = {"gemm_us": Contestant("the product alone", operands.alone, operands, barrier)}
    if not library:
        contestants["serial_us"] = Contestant("the product and NCCL", operands.unfused, operands, barrier)
    for contestant in contestants.values():
        contestant.prepare(checked=False)
    contestants["cublasmp_us" if library else "torch_us"] = peer
    m, n, k = operands.shape()
    for regime in options.regime or REGIMES:
        idle, replays, warm_up = REGIMES[regime]
        times = {key: [] for key in contestants}
        for repeat in range(warm_up + options.repeats):
            for turn in range(len(contestants)):
                key = list(contestants)[(repeat + turn) % len(contestants)]
                time.sleep(idle)
                us = contestants[key].time(replays)
                if repeat >= warm_up:
                    times[key].append(us)
        medians = {key: statistics.median(us) for key, us in times.items()}
        yield dict(
            op=op, model=model, dtype="bf16", world=world, m=m, n=n, k=k,
            variant="cuBLASMp" if library else "PyTorch", regime=regime,
            timing="graph" if peer.graph else "eager", ours_us=None, serial_us=None, torch_us=None, cublasmp_us=None,
            limit_us=None, fraction=None, efficiency=None,
            spread=max((max(us) - min(us)) / medians[key] for key, us in times.items()), link_gbps=None,
            error=error, date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            device=torch.cuda.get_device_name(), driver=f"CUDA {torch.version.cuda}", libraries=libraries(library),
        ) | medians
    for contestant in contestants.values():
        contestant.close()
    operands.close()


def libraries(library):
    version = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    nccl = f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"
    names = [f"cuBLASMp {library.version()}"] if library else []
    return ", ".join([*names, f"PyTorch {torch.__version__}", f"NCCL {nccl}"])


def run(rank, world, options):
    threading.Thread(target=watch, daemon=True).start()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    library = cublasmp.CublasMp(options.cublasmp, rank, world) if options.cublasmp else None
    barrier = Barrier()
    torch.manual_seed(rank)
    records = []
    for op in options.op or OPERATIONS:
        for model in options.model or MODELS:
            for rows in options.rows or [512, 2048, 8192]:
                for record in measure(op, model, rows, options, library, barrier, world):
                    records.append(record)
                    if rank == 0:
                        times = {key: round(us, 1) for key, us in record.items() if key.endswith("_us") and us}
                        print(op, model, rows, record["regime"], record["timing"], times, flush=True)
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
    parser.add_argument("--regime", action="append", choices=REGIMES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cublasmp", help="path of libcublasmp.so.0, to time it instead of PyTorch's operations")
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    mp.spawn(run, (torch.cuda.device_count(), options), torch.cuda.device_count())
