"""PyTorch's symmetric-memory operations, or cuBLASMp's, for entwine-bench to time beside its own: see serving.py."""

import argparse
import gc

from contestant import Barrier, Contestant, fastest, libraries, start

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import cublasmp
from serving import Unsupported, replies, requests, say, serve

# Those that sum products of all ranks, on every rank.
ALL_REDUCES = ["gemm_all_reduce", "gemv_all_reduce"]
CACHE = 60_000_000


class Operands:
    """What the calls of one operation and shape work on."""

    def __init__(self, op, shape, world):
        self.op, self.world = op, world
        self.m, self.n, self.k = shape
        gathers = op == "all_gather_gemm"
        own_rows = self.m // world if gathers else self.m
        # Sets of a and b (as stored, n × k) that calls take in turns, so that none stays in the cache.
        sets = -(-2 * CACHE // (2 * (self.m + self.n) * self.k))
        self.sets = [(random(own_rows, self.k), random(self.n, self.k)) for _ in range(sets)]

    def shape(self):
        return self.m, self.n, self.k

    def close(self):
        for a, _ in self.sets:
            getattr(a, "close", lambda: None)()
        self.sets = []

    def unfused(self, a, b):
        if self.op == "all_gather_gemm":
            whole = torch.empty(self.m, self.k, device="cuda", dtype=a.dtype)
            dist.all_gather_into_tensor(whole, a)
            return torch.mm(whole, b.t())
        product = torch.mm(a, b.t())
        if self.op in ALL_REDUCES:
            dist.all_reduce(product)
            return product
        out = torch.empty(self.m // self.world, self.n, device="cuda", dtype=a.dtype)
        dist.reduce_scatter_tensor(out, product)
        return out


def random(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.5


def pytorch(operands, barrier):
    """PyTorch's operations: fused, or, where it has none, those that exchange a product in symmetric memory."""
    group = dist.group.WORLD.group_name
    if operands.op == "gemm_reduce_scatter":
        fused = torch.ops.symm_mem.fused_matmul_reduce_scatter
        call = lambda a, b: fused(a, b.t(), "sum", 0, group)
        return [Contestant("fused_matmul_reduce_scatter", call, operands, barrier)]
    if operands.op == "all_gather_gemm":
        fused = torch.ops.symm_mem.fused_all_gather_matmul
        call = lambda a, b: fused(a, [b.t()], 0, group, return_A=False)[1][0]
        return [Contestant("fused_all_gather_matmul", call, operands, barrier)]
    if operands.op not in ALL_REDUCES:
        raise Unsupported(f"PyTorch has no {operands.op}")
    device = torch.device("cuda", torch.cuda.current_device())
    product = symm_mem.empty(operands.m, operands.n, dtype=torch.bfloat16, device=device)
    symm_mem.rendezvous(product, dist.group.WORLD)

    def reduced(name):
        reduce = getattr(torch.ops.symm_mem, name)

        def call(a, b):
            torch.mm(a, b.t(), out=product)
            return reduce(product, "sum", group)

        return Contestant(f"mm and {name}", call, operands, barrier)

    return map(reduced, ["one_shot_all_reduce", "two_shot_all_reduce_"])


def of_cublasmp(library, operands, barrier):
    """cuBLASMp's algorithms."""
    if operands.op not in cublasmp.OPERATIONS:
        raise Unsupported(f"cuBLASMp has no {operands.op}")
    if operands.op == "all_gather_gemm":
        operands.sets = [(library.registered(a), b) for a, b in operands.sets]
    contestants = []
    for algorithm in cublasmp.ALGORITHMS:
        product = None
        try:
            product = library.product(operands.op, operands.shape(), algorithm)
            product(*operands.sets[0])
        except Unsupported as reason:
            print(f"cuBLASMp, algorithm {algorithm}: {reason}", flush=True)
            if product:
                product.close()
            continue
        # Calls that are captured don't wait for each other when they are replayed: results are wrong if a rank is late.
        contestants.append(Contestant(f"algorithm {algorithm}", product, operands, barrier, replays=False))
    return contestants


def main(options, questions, answers):
    start(options.rank, options.world, options.port)
    try:
        library = cublasmp.CublasMp(options.cublasmp, options.rank, options.world) if options.cublasmp else None
    except Unsupported as reason:
        return say(answers, dict(failure=str(reason)))
    barrier = Barrier()

    def prepare(case):
        operands = Operands(case["op"], (case["m"], case["n"], case["k"]), options.world)
        peer = fastest(of_cublasmp(library, operands, barrier) if library else pytorch(operands, barrier))
        if peer is None:
            operands.close()
            raise Unsupported("none of its ways to do this is right and can be timed")

        def close():
            peer.close()
            operands.close()
            gc.collect()
            torch.cuda.empty_cache()

        return dict(fastest=peer), {}, close

    names = [f"cuBLASMp {library.version()}"] if library else []
    serve(questions, answers, libraries(*names), prepare)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cublasmp", help="path of libcublasmp.so.0, to time it instead of PyTorch's operations")
    options = parser.parse_args()
    main(options, requests(), replies())
