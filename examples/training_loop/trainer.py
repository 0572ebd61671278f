"""A small transformer, trained by a custom loop that yields its steps.

It has gradient accumulation, clipping, and a schedule.
"""

from collections.abc import Iterator

import torch
from torch.nn.functional import cross_entropy

import ci_bench

PARTS, ROWS, LENGTH, TOKENS, RATE, WARMUP = 2, 8, 16, 64, 0.02, 5


def train(width: int = 32) -> Iterator[ci_bench.Step]:
    """Train until no one asks for another step."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(TOKENS, width), layer, torch.nn.Linear(width, TOKENS)
    )
    ci_bench.perturb(model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1 / WARMUP, total_iters=WARMUP
    )
    draws = torch.Generator().manual_seed(1)
    while True:
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(PARTS):
            rows = torch.randint(TOKENS, (ROWS, LENGTH), generator=draws)
            loss = cross_entropy(model(rows).flatten(0, 1), rows.roll(1, 1).flatten()) / PARTS
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield ci_bench.Step(loss=total, grad_norm=norm, tokens=PARTS * ROWS * LENGTH)
