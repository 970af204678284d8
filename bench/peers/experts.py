"""Layers of experts made of NCCL's all-to-all and PyTorch's products, for entwine-bench to time beside its own: see serving.py.

The routings are those of `entwine-bench moe`, which holds the checksums against each other.
"""

import argparse
import gc
from types import SimpleNamespace

from contestant import Barrier, Contestant, libraries, slowest, start

import torch
import torch.distributed as dist
import torch.nn.functional as F

from serving import replies, requests, serve

# Streams that products of single experts take turns on, so that small ones run at once.
STREAMS = 4


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


def checksum(chosen):
    """Of all choices in their order."""
    sums = 0
    for choice in chosen.reshape(-1).tolist():
        sums = (sums * 31 + choice) % (1 << 32)
    return sums


class Layer:
    """A layer of experts on this rank. What goes where is worked out beforehand, at no cost to what is timed."""

    def __init__(self, sizes, rank, world):
        self.width, hidden, experts, choices, tokens = sizes
        each, self.tokens, self.choices = experts // world, tokens, choices
        chosen, weights = route(experts, choices, tokens * world)
        self.routing = checksum(chosen)
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
        self.ends, self.loads = loads.cumsum(0).int().cuda(), loads.tolist()
        self.rows = torch.randn(int(loads.sum()), self.width, dtype=torch.bfloat16, device="cuda")
        self.hidden = torch.randn(int(loads.sum()), hidden, dtype=torch.bfloat16, device="cuda")
        self.outputs = torch.empty(len(self.rows), self.width, dtype=torch.bfloat16, device="cuda")
        self.gates = torch.empty(len(self.rows), 2 * hidden, dtype=torch.bfloat16, device="cuda")
        self.streams = [torch.cuda.Stream() for _ in range(STREAMS)]

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

    def grouped(self, *_):
        """Both products alone, each as one."""
        self.first(self.rows)
        return self.second(self.hidden)

    def one_by_one(self, *_):
        """Both products alone, each expert's by itself, one after the other."""
        for rows, weights, into in self.of_experts():
            torch.mm(rows, weights.t(), out=into)

    def side_by_side(self, *_):
        """Both products alone, each expert's by itself, several at once."""
        main = torch.cuda.current_stream()
        for stream in self.streams:
            stream.wait_stream(main)
        for turn, (rows, weights, into) in enumerate(self.of_experts()):
            with torch.cuda.stream(self.streams[turn % STREAMS]):
                torch.mm(rows, weights.t(), out=into)
        for stream in self.streams:
            main.wait_stream(stream)

    def of_experts(self):
        """Operands and results of all experts' products, the first ones first."""
        for operands, weights, results in (
            (self.rows, self.gate_up, self.gates),
            (self.hidden, self.down, self.outputs),
        ):
            parts = operands.split(self.loads), weights, results.split(self.loads)
            yield from ((rows, expert, into) for rows, expert, into in zip(*parts) if len(rows))


def main(options, questions, answers):
    rank, world = options.rank, options.world
    start(rank, world, options.port)
    barrier = Barrier()

    def prepare(case):
        layer = Layer([case[size] for size in ("columns", "hidden", "experts", "choices", "tokens")], rank, world)
        one, other = layer.with_copies().float(), layer.with_rows_once().float()
        error = slowest(((one - other).norm() / one.norm()).item())
        if not error < 0.02:
            raise ValueError(f"the two unfused layers differ by {error}")
        operands = SimpleNamespace(sets=[(None, None)], world=world)
        calls = dict(
            copies=layer.with_copies, once=layer.with_rows_once,
            grouped=layer.grouped, one_by_one=layer.one_by_one, side_by_side=layer.side_by_side,
        )
        contestants = {}
        for name, call in calls.items():
            try:
                contestants[name] = Contestant(name, call, operands, barrier).prepare(checked=False)
            except RuntimeError as reason:
                print(f"{name}: {reason}", flush=True)

        def close():
            for contestant in contestants.values():
                contestant.close()
            gc.collect()
            torch.cuda.empty_cache()

        return contestants, dict(routing=layer.routing, error=error), close

    serve(questions, answers, libraries(), prepare)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    main(parser.parse_args(), requests(), replies())
