"""A small transformer, trained by one process or by several under torchrun.

Its loop is its own, and reports its steps.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import ci_bench

STEPS, ROWS, LENGTH, TOKENS, RATE = 20, 16, 16, 64, 0.05


def train(rank: int, count: int) -> None:
    """Train one of `count` processes, to which rows are dealt out in turn."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 32), layer, torch.nn.Linear(32, TOKENS))
    ci_bench.perturb(model.parameters())
    model = DistributedDataParallel(model) if count > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    draws = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        rows = torch.randint(TOKENS, (ROWS, LENGTH), generator=draws)
        shard = rows[rank::count]
        loss = cross_entropy(model(shard).flatten(0, 1), shard.roll(1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ci_bench.step(loss=loss, grad_norm=norm, tokens=shard.numel())


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        train(dist.get_rank(), dist.get_world_size())
        dist.barrier()
        os._exit(0)  # gloo's threads may abort a process that takes them down
    else:
        train(0, 1)
