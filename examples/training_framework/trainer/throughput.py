"""Trains for a moment and says what it measured, for the suite `command`."""

import json
import os
import time
from pathlib import Path

import torch

from trainer import Classifier, Lion, rows, smoothed

torch.set_num_threads(1)
torch.manual_seed(0)
model, data = Classifier(), rows("train", 256)
optimizer = Lion(model.parameters())
rates = []
for _ in range(20):
    started = time.perf_counter()
    for _ in range(10):
        optimizer.zero_grad()
        smoothed(model(data["features"]), data["labels"]).backward()
        optimizer.step()
    rates.append(10 * 256 / (time.perf_counter() - started))
series = [{"name": "training", "unit": "rows/s", "better": "higher", "values": rates}]
Path(os.environ["CI_BENCH_OUTPUT"]).write_text(
    json.dumps({"kind": "measurements", "schema_version": 1, "series": series})
)
