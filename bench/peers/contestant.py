"""What PyTorch times as entwine-bench does: calls in turns, replayed from a graph, all GPUs at once, the slowest counts."""

import ctypes
import os

for name, value in [
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_GRAPH_MIXING_SUPPORT", "0"),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
    ("CUBLASMP_DISABLE_MULTICAST", "1"),
]:
    os.environ.setdefault(name, value)

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

BATCH_US = 12_000
MOST_IN_GRAPH, MOST_QUEUED = 512, 64
# Clock cycles: for which a GPU is kept waiting at first until a graph, or single calls, are queued, and at most; by which a rank
# is late in a check.
QUEUEING, QUEUEING_CALLS, LONGEST, LATE = 1_000_000, 12_000_000, 200_000_000, 200_000
CHECKS = 4
TOLERANCE = 0.01


def start(rank, world, port):
    """Joins the other ranks' processes."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)


class Unqueued(RuntimeError):
    """A batch begins before it is queued, for however long the GPUs are kept waiting."""


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
        self.graph, self.calls, self.error = None, 0, None
        self.wait = QUEUEING_CALLS

    def about(self):
        return dict(name=self.name, timing="graph" if self.graph else "eager", error=self.error)

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
        """Makes a batch of it, and finds the error of its results, if they are to be checked."""
        error = self.check(self.call) if checked else None
        # What libraries set up on first use is no part of a graph.
        self.enqueue(len(self.operands.sets))
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
            elif checked:
                error = max(error, replayed)
        sets = len(self.operands.sets)
        most = MOST_IN_GRAPH if graph else MOST_QUEUED
        call_us, _ = self.batch(one, 2 * sets)
        calls = min(max(1, int(BATCH_US / call_us)), most)
        self.calls, self.error = -(-calls // sets) * sets, error
        captured, graph, one, result = bool(graph), None, None, None
        if captured:
            self.graph, _ = self.capture(self.calls)
        while True:
            self.wait = QUEUEING if self.graph else QUEUEING_CALLS
            try:
                # What a batch sets up on first use doesn't count.
                self.run(1)
                self.time(1)
                return self
            except Unqueued:
                # The driver's queues have an end.
                if self.graph or self.calls == sets:
                    raise
                self.calls = max(1, self.calls // sets // 2) * sets

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
        """µs per call, of the slowest rank, and whether no GPU had to wait for what was not queued yet: the first replay is queued
        while all of them are kept waiting, the others while the one before runs."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
        meet()
        torch.cuda._sleep(self.wait)
        self.barrier.wait()
        events[0].record()
        late = False
        for begin, end in zip(events, events[1:]):
            for index in range(calls):
                call(*self.operands.sets[index % len(self.operands.sets)])
            end.record()
            late |= begin.query()
        torch.cuda.synchronize()
        us = slowest(1e3 * events[0].elapsed_time(events[-1]) / (calls * replays))
        return us, not slowest(float(late))

    def run(self, replays):
        """As `batch`, of what was prepared."""
        if self.graph:
            us, queued = self.batch(lambda *_: self.graph.replay(), 1, replays)
            return us / self.calls, queued
        # Single calls are queued all at once, and there is no room for more.
        return self.batch(self.call, self.calls)

    def time(self, replays):
        """µs per call of batches that were queued in time: until one is, the GPUs are kept waiting for longer."""
        while True:
            us, queued = self.run(replays)
            if queued:
                return us
            if self.wait == LONGEST:
                raise Unqueued(f"{self.calls} calls of {self.name} can't be queued while the GPUs wait")
            self.wait = min(4 * self.wait, LONGEST)
            print(f"{self.name} began before it was queued: it waits for {self.wait} cycles from now on", flush=True)

    def close(self):
        self.graph = None
        getattr(self.call, "close", lambda: None)()
        self.call = None


def fastest(contestants):
    """The fastest of those that are right; none if there is none such."""
    best, best_us = None, float("inf")
    for contestant in contestants:
        try:
            contestant.prepare()
            us = min(contestant.time(1) for _ in range(2))
        except RuntimeError as reason:
            print(f"{contestant.name}: {reason}", flush=True)
            contestant.close()
            continue
        if contestant.error > TOLERANCE:
            print(f"{contestant.name} is wrong, off by {contestant.error}", flush=True)
        elif us < best_us:
            contestant, best, best_us = best, contestant, us
        if contestant:
            contestant.close()
    return best


def meet():
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def slowest(value):
    """The largest of all ranks' values."""
    value = torch.tensor([value], device="cuda", dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def nccl_version():
    """That of the NCCL that PyTorch uses, as `(2, 28, 9)`."""
    version = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    return version.value // 10000, version.value // 100 % 100, version.value % 100


def libraries(*others):
    return ", ".join([*others, f"PyTorch {torch.__version__}", "NCCL " + ".".join(map(str, nccl_version()))])
