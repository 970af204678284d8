"""Times layers of experts made of NCCL's all-to-all and PyTorch's grouped products, on all GPUs, and both products alone.

The routings are those of `entwine-bench moe`, which joins the records to its own with `--peers FILE`.
"""

import argparse
import datetime
import json
import os
import statistics
import threading
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from peers import REGIMES, Barrier, Contestant, libraries, watch

# Width of the residual stream and of an expert's inside, experts, and how many of them a token chooses.
MODELS = {"mixtral": (4096, 14336, 8, 2), "qwen2moe": (2048, 1408, 64, 4), "dsv3ish": (7168, 2048, 64, 8)}
TOKENS = [64, 256, 1024, 4096]


def shifted(bits, by):
    """Shifted to the right, as if it had no sign."""
    return bits >> by & (1 << 64 - by) - 1


def route(experts, choices, tokens):
    """The choices of all ranks' tokens: the experts with the largest of random logits, softmax over them."""
    position = torch.arange(tokens)[:, None] << 20 | torch.arange(experts)
    bits = (position + 1) * (0x9E3779B97F4A7C15 - (1 << 64))
    bits = (bits ^ shifted(bits, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    bits = (bits ^ shifted(bits, 27)) * (0x94D049BB133111EB - (1 << 64))
    bits ^= shifted(bits, 31)
    chosen = torch.argsort(bits ^ -(1 << 63), dim=1, descending=True, stable=True)[:, :choices]
    logits = shifted(bits.gather(1, chosen), 40).float() / (1 << 22)
    return chosen, torch.softmax(logits, 1)


class Layer:
    """A layer of experts on this rank. What goes where is worked out beforehand, at no cost to what is timed."""

    def __init__(self, model, tokens, rank, world):
        self.width, hidden, experts, choices = MODELS[model]
        each, self.tokens, self.choices = experts // world, tokens, choices
        chosen, weights = route(experts, choices, tokens * world)
        self.x = torch.randn(tokens, self.width, dtype=torch.bfloat16, device="cuda")
        normal = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device="cuda") * shape[-1] ** -0.5
        self.gate_up, self.down = normal(each, 2 * hidden, self.width), normal(each, self.width, hidden)

        by_rank = chosen // each
        of = lambda source: slice(source * tokens, (source + 1) * tokens)
        sort = lambda values: torch.argsort(values, stable=True)
        ranks = range(world)
        # Copies: a row for each choice, in the order of experts.
        order = sort(chosen[of(rank)].reshape(-1))
        received = [chosen[of(source)][by_rank[of(source)] == rank] for source in ranks]
        to_experts = sort(torch.cat([rows.sort().values for rows in received]))
        self.copies = SimpleNamespace(
            sent=(order // choices).cuda(), back=sort(order).cuda(), to_experts=to_experts.cuda(),
            from_experts=sort(to_experts).cuda(), receive=[len(rows) for rows in received],
            send=[int((by_rank[of(rank)] == to).sum()) for to in ranks],
        )
        self.weights = weights[of(rank)].cuda()

        # Once: a row for each rank that a token needs.
        needs = [(by_rank == to).any(1) for to in ranks]
        sent = [needs[to][of(rank)].nonzero()[:, 0] for to in ranks]
        came = [needs[rank][of(source)].nonzero()[:, 0] for source in ranks]
        here = torch.cat([came[source] + source * tokens for source in ranks])
        row, choice = (by_rank[here] == rank).nonzero(as_tuple=True)
        by_expert = sort(chosen[here][row, choice])
        self.once = SimpleNamespace(
            sent=torch.cat(sent).cuda(), send=[len(rows) for rows in sent], receive=[len(rows) for rows in came],
            rows=row[by_expert].cuda(), weights=weights[here][row, choice][by_expert].bfloat16().cuda()[:, None],
        )
        loads = torch.bincount(chosen[by_rank == rank] - rank * each, minlength=each)
        self.ends = loads.cumsum(0).int().cuda()
        self.rows = torch.randn(int(loads.sum()), self.width, dtype=torch.bfloat16, device="cuda")
        self.hidden = torch.randn(int(loads.sum()), hidden, dtype=torch.bfloat16, device="cuda")
        sizes = [sum(way[peer] for peer in ranks if peer != rank) for way in (self.once.send, self.once.receive)]
        self.wire_bytes = 2 * self.width * max(sizes)

    def exchange(self, rows, send, receive):
        out = torch.empty(sum(receive), self.width, dtype=rows.dtype, device="cuda")
        dist.all_to_all_single(out, rows, receive, send)
        return out

    def experts(self, rows):
        gate, up = self.first(rows).chunk(2, dim=1)
        return self.second(F.silu(gate) * up)

    def first(self, rows):
        return torch._grouped_mm(rows, self.gate_up.transpose(1, 2), offs=self.ends)

    def second(self, hidden):
        return torch._grouped_mm(hidden, self.down.transpose(1, 2), offs=self.ends)

    def with_copies(self, *_):
        """Each token goes once for each choice."""
        way = self.copies
        rows = self.exchange(self.x[way.sent], way.send, way.receive)
        outputs = self.experts(rows[way.to_experts])
        back = self.exchange(outputs[way.from_experts], way.receive, way.send)[way.back]
        parts = back.view(self.tokens, self.choices, self.width)
        return torch.bmm(self.weights.to(back.dtype)[:, None, :], parts)[:, 0]

    def with_rows_once(self, *_):
        """Each token goes once to each rank that it needs, and comes back once, summed there."""
        way = self.once
        rows = self.exchange(self.x[way.sent], way.send, way.receive)
        outputs = self.experts(rows[way.rows]) * way.weights
        sums = torch.zeros(sum(way.receive), self.width, dtype=torch.float32, device="cuda")
        sums.index_add_(0, way.rows, outputs.float())
        back = self.exchange(sums.to(rows.dtype), way.receive, way.send)
        return torch.zeros_like(self.x).index_add_(0, way.sent, back)

    def products(self, *_):
        self.first(self.rows)
        return self.second(self.hidden)


def measure(model, tokens, options, barrier, rank, world):
    layer = Layer(model, tokens, rank, world)
    one, other = layer.with_copies().float(), layer.with_rows_once().float()
    error = ((one - other).norm() / one.norm()).item()
    if not error < 0.02:
        raise SystemExit(f"{model}, {tokens} tokens: the two unfused layers differ by {error}")
    operands = SimpleNamespace(sets=[(None, None)], world=world)
    contestants = {
        "gemm_us": Contestant("both products alone", layer.products, operands, barrier),
        "copies_us": Contestant("the layer with copies", layer.with_copies, operands, barrier),
        "once_us": Contestant("the layer with rows once", layer.with_rows_once, operands, barrier),
    }
    for contestant in contestants.values():
        contestant.prepare(checked=False)
    for regime in options.regime or ["burst"]:
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
        bytes_us = torch.tensor([float(layer.wire_bytes)], device="cuda", dtype=torch.float64)
        dist.all_reduce(bytes_us, dist.ReduceOp.MAX)
        yield dict(
            op="moe_layer", dtype="bf16", world=world, shape=dict(model=model, tokens=tokens), variant="PyTorch",
            regime=regime, timing="graph" if contestants["once_us"].graph else "eager", ours_us=None,
            gemm_us=medians["gemm_us"], serial_us=min(medians["copies_us"], medians["once_us"]),
            limit_us=None, fraction=None,
            spread=max((max(us) - min(us)) / medians[key] for key, us in times.items()), link_gbps=None,
            wire_bytes=int(bytes_us.item()), copies_us=medians["copies_us"], once_us=medians["once_us"], error=error,
            date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            device=torch.cuda.get_device_name(), driver=f"CUDA {torch.version.cuda}", libraries=libraries(None),
        )
    for contestant in contestants.values():
        contestant.close()


def run(rank, world, options):
    threading.Thread(target=watch, daemon=True).start()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    barrier = Barrier()
    torch.manual_seed(rank)
    records = []
    for model in options.model or MODELS:
        for tokens in options.tokens or TOKENS:
            for record in measure(model, tokens, options, barrier, rank, world):
                records.append(record)
                if rank == 0:
                    times = {key: round(us, 1) for key, us in record.items() if key.endswith("_us") and us}
                    print(model, tokens, record["regime"], record["timing"], times, flush=True)
            if rank == 0:
                with open(options.file, "w") as file:
                    json.dump(records, file, indent=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the JSON file to write")
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--tokens", action="append", type=int)
    parser.add_argument("--regime", action="append", choices=REGIMES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--port", type=int, default=29512)
    options = parser.parse_args()
    mp.spawn(run, (torch.cuda.device_count(), options), torch.cuda.device_count())
