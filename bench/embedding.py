"""PyTorch's embedding_bag followed by NCCL's all-to-all, on two GPUs: what `entwine-bench one-sided` times, in the same shapes.

One call pools all of a rank's tables; a rank's part of the bags is one block of them, so that nothing is packed. Burst, medians
of 5 repeats of 4 calls, the slower rank counts. Prints a record a line: python3 bench/embedding.py
"""

import datetime
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2
TABLES, ROWS, POOLING = 32, 100_000, 40
SHAPES = [(4096, 256), (16384, 128)]
REPEATS, CALLS, IDLE = 5, 4, 0.05


def clock(call):
    """The slower rank's time of one call, in µs."""
    for _ in range(2):
        call()
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        time.sleep(IDLE)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    median = torch.tensor(sorted(times)[REPEATS // 2], device="cuda")
    dist.all_reduce(median, op=dist.ReduceOp.MAX)
    return median.item()


def measure(batch, width):
    """The time of the bags alone, and of the bags and the exchange."""
    table = torch.rand(TABLES * ROWS, width, device="cuda")
    begins = (torch.arange(TABLES, device="cuda") * ROWS).repeat_interleave(batch * POOLING)
    indices = torch.randint(0, ROWS, (TABLES * batch * POOLING,), device="cuda") + begins
    offsets = torch.arange(0, TABLES * batch * POOLING, POOLING, device="cuda")
    into = torch.empty(TABLES * batch, width, device="cuda")

    def bag():
        return torch.nn.functional.embedding_bag(indices, table, offsets, mode="sum")

    return clock(bag), clock(lambda: dist.all_to_all_single(into, bag()))


def work(rank):
    """One rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=WORLD, device_id=torch.device("cuda", rank))
    for batch, width in SHAPES:
        bag_us, torch_us = measure(batch, width)
        if rank == 0:
            record = {
                "op": "embedding_all_to_all",
                "shape": f"batch {batch}, {TABLES} tables of {ROWS} rows, width {width}, pooling {POOLING}",
                "dtype": "f32",
                "world": WORLD,
                "variant": "pytorch",
                "regime": "burst",
                "bag_us": bag_us,
                "torch_us": torch_us,
                "date": datetime.date.today().isoformat(),
                "device": torch.cuda.get_device_name(),
            }
            print(json.dumps(record), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, nprocs=WORLD)
