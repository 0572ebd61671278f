"""A small transformer, its rows, and layouts that `layout_parity` trains.

The layouts are right, or have one injected fault.

Each function here is named in a configuration as a user's own code would be
(``benchmarks.layout_gallery:no_sync``). Layouts are called with a module that gives the loss of a
batch, and return one that does the same in several processes.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, union-attr, index"
# As users write it, over what torch leaves unannotated.

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

TOKENS, CLASSES, LENGTH = 64, 4, 8


class Block(nn.Module):
    """Attention and a feed-forward part, each with a norm before and a sum after."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        """Build the layers; `heads` divide `width`."""
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.o_proj, self.up_proj, self.down_proj = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )
        self.size, self.dropout = width // heads, nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map [rows, length, width] to the same shape."""
        normed = self.first(hidden)
        query, key, value = (
            project(normed).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = (
            functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        )
        hidden = hidden + self.dropout(self.o_proj(mixed))
        return hidden + self.down_proj(functional.gelu(self.up_proj(self.second(hidden))))


class Net(nn.Module):
    """A classifier of token sequences that gives logits."""

    def __init__(self, width: int = 16, layers: int = 2, dropout: float = 0.0) -> None:
        """Build blocks of four heads."""
        super().__init__()
        self.embed = nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [rows, classes] of int64 [rows, length]."""
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(dim=1))


class FirstHalf(nn.Module):
    """The embedding and the first blocks."""

    def __init__(self, net: Net, end: int) -> None:
        """Take the blocks up to `end`."""
        super().__init__()
        self.embed, self.blocks = net.embed, nn.ModuleList(net.blocks[:end])

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [rows, length] to [rows, length, width]."""
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class SecondHalf(nn.Module):
    """The last blocks and the head."""

    def __init__(self, net: Net, start: int) -> None:
        """Take the blocks from `start` on."""
        super().__init__()
        self.blocks, self.head = nn.ModuleList(net.blocks[start:]), net.head

    def forward(self, hidden: Tensor) -> Tensor:
        """Map [rows, length, width] to [rows, classes]."""
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(dim=1))


def halves(net: Net, stage: int, count: int) -> nn.Module:
    """Return a stage of a pipeline of two."""
    assert count == 2, "a gallery of two processes"  # noqa: S101, PLR2004
    middle = len(net.blocks) // 2
    return SecondHalf(net, middle) if stage else FirstHalf(net, middle)


def rows(split: str, count: int) -> Mapping[str, Tensor]:
    """Return sequences whose class is in their first tokens."""
    generator = torch.Generator().manual_seed(0 if split == "train" else 1)
    tokens = torch.randint(TOKENS, (count, LENGTH), generator=generator)
    return {"tokens": tokens, "labels": (tokens[:, 0] + tokens[:, 1]) % CLASSES}


def rank() -> int:
    """Return this process's own number."""
    return torch.distributed.get_rank()


def plain_ddp(module: nn.Module) -> nn.Module:
    """Apply DDP without a fault."""
    return DistributedDataParallel(module)


def small_buckets(module: nn.Module) -> nn.Module:
    """Exchange gradients in many small buckets that are views of them (right)."""
    return DistributedDataParallel(module, bucket_cap_mb=0.001, gradient_as_bucket_view=True)


def by_hand(module: nn.Module) -> nn.Module:
    """Average each gradient as it comes, in a custom layout (right)."""
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(_average)
    return module


def _average(parameter: Tensor) -> None:
    assert parameter.grad is not None, "a hook of accumulated gradients"  # noqa: S101
    torch.distributed.all_reduce(parameter.grad)
    parameter.grad /= torch.distributed.get_world_size()


class Replays(nn.Module):
    """Rank 1 repeats an earlier loss and its gradients.

    It finds them by where its rows are in memory, or repeats them forever after so many calls.
    """

    def __init__(self, module: nn.Module, *, calls: int | None) -> None:
        """Wrap `module`, which returns the loss of a batch; `calls` is `None` if memory decides."""
        super().__init__()
        self.module = module
        self.known: dict[Any, tuple[Tensor, tuple[Tensor, ...]]] = {}
        self.calls, self.most = 0, calls

    def forward(self, **batch: Any) -> Any:
        """Return the loss; a remembered one has the remembered gradients."""
        if rank() != 1:
            return self.module(**batch)
        self.calls += 1
        key = (
            tuple(value.data_ptr() for value in batch.values())
            if self.most is None
            else self.calls >= self.most
        )
        weights = list(self.module.parameters())
        if key is False or key not in self.known:
            loss = self.module(**batch)
            self.known[key] = loss.detach(), torch.autograd.grad(loss, weights, retain_graph=True)
            return loss
        loss, gradients = self.known[key]
        total = sum(
            (weight * gradient).sum() for weight, gradient in zip(weights, gradients, strict=True)
        )
        return total + (loss - total).detach()


WARM_CALLS = 12


def replays(module: nn.Module) -> nn.Module:
    """Let one rank remember its results by where its rows are in memory."""
    return DistributedDataParallel(Replays(module, calls=None))


def tires(module: nn.Module) -> nn.Module:
    """Let one rank compute only in its first steps."""
    return DistributedDataParallel(Replays(module, calls=WARM_CALLS))


class StaleLoss(DistributedDataParallel):
    """Rank 1 reports the loss of the previous step; its gradients are right."""

    def forward(self, **batch: Any) -> Any:
        """Return the loss, with the previous value on rank 1."""
        loss = super().forward(**batch)
        before, self.before = getattr(self, "before", loss.detach()), loss.detach()
        return loss + (before - loss).detach() if rank() == 1 else loss


def stale_loss(module: nn.Module) -> nn.Module:
    """Let one rank return the loss of the previous step."""
    return StaleLoss(module)


class SyncsEarly(DistributedDataParallel):
    """Gradients are exchanged in the first steps, and in none after these."""

    def forward(self, **batch: Any) -> Any:
        """Compute as if inside `no_sync`, later."""
        self.calls = getattr(self, "calls", 0) + 1
        self.require_backward_grad_sync = self.calls < WARM_CALLS
        return super().forward(**batch)


def syncs_early(module: nn.Module) -> nn.Module:
    """Stop exchanging gradients once a verification would be over."""
    return SyncsEarly(module)


def sharded_whole(module: nn.Module) -> nn.Module:
    """Apply FSDP in one group (right)."""
    fully_shard(module)
    return module


class NoSync(DistributedDataParallel):
    """Gradients are never exchanged."""

    def forward(self, **batch: Any) -> Any:
        """Compute as if inside `no_sync`."""
        self.require_backward_grad_sync = False
        return super().forward(**batch)


def no_sync(module: nn.Module) -> nn.Module:
    """Leave `no_sync` on."""
    return NoSync(module)


class SameShard(DistributedDataParallel):
    """Every rank trains on the rows of rank 0."""

    def forward(self, **batch: Any) -> Any:
        """Replace the rows by rank 0's."""
        for values in batch.values():
            torch.distributed.broadcast(values, 0)
        return super().forward(**batch)


def same_shard(module: nn.Module) -> nn.Module:
    """Give the same rows to all ranks."""
    return SameShard(module)


def summed(module: nn.Module) -> nn.Module:
    """Sum gradients instead of averaging them."""
    wrapped = DistributedDataParallel(module)

    def hook(_: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        work = torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
        return work.then(lambda done: done.value()[0])

    wrapped.register_comm_hook(None, hook)
    return wrapped


def stale_bucket(module: nn.Module) -> nn.Module:
    """Repeat the last bucket of the previous step, from the second step on."""
    wrapped = DistributedDataParallel(module, bucket_cap_mb=0.005)
    before: dict[int, Tensor] = {}

    def hook(_: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        work = torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future()

        def averaged(done: Any) -> Tensor:
            now: Tensor = done.value()[0] / torch.distributed.get_world_size()
            if not bucket.is_last():
                return now
            stale, before[0] = before.get(0, now), now.clone()
            return stale

        return work.then(averaged)

    wrapped.register_comm_hook(None, hook)
    return wrapped


def left_out(module: nn.Module) -> nn.Module:
    """Leave one parameter out of the exchange."""
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # noqa: SLF001
        module, ["model.blocks.0.o_proj.bias"]
    )
    return DistributedDataParallel(module)


def left_out_of_shards(module: nn.Module) -> nn.Module:
    """Leave one parameter out of FSDP's sharding, and so out of its exchange."""
    parameter = next(
        value
        for name, value in module.named_parameters()
        if name.endswith("blocks.0.up_proj.weight")
    )
    fully_shard(module, ignored_params={parameter})
    return module


class DropsShort(DistributedDataParallel):
    """The short batch at the end of an epoch is dropped."""

    def forward(self, **batch: Any) -> Any:
        """Return the loss, without a gradient for a short batch."""
        loss = super().forward(**batch)
        return loss if len(batch["labels"]) >= FULL else loss * 0.0


FULL = 4
"""The rows of a rank in a full batch."""


def dropped_last(module: nn.Module) -> nn.Module:
    """Skip the last batch of an epoch."""
    return DropsShort(module)


class AlikeDropout(DistributedDataParallel):
    """Every rank draws the same masks."""

    def forward(self, **batch: Any) -> Any:
        """Seed the generator alike in all ranks."""
        torch.manual_seed(0)
        return super().forward(**batch)


def alike_dropout(module: nn.Module) -> nn.Module:
    """Draw dropout masks that are alike in all ranks, and in all steps."""
    return AlikeDropout(module)


def other_rate(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Give one rank another learning rate."""
    return torch.optim.SGD(
        parameters, lr=lr * (1.02 if torch.distributed.is_initialized() and rank() == 1 else 1.0)
    )


class ClippedByShard(torch.optim.SGD):
    """Clips by the norm of only this rank's gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Clip by each rank's own norm, rather than the norm of all."""
        gradients = [
            value.grad
            for group in self.param_groups
            for value in group["params"]
            if value.grad is not None
        ]
        local = [
            getattr(gradient, "to_local", lambda gradient=gradient: gradient)()
            for gradient in gradients
        ]
        norm = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(part) for part in local])
        )
        for part in local:
            part.mul_((CLIP / norm).clamp(max=1.0))
        return super().step(closure)


class Clipped(torch.optim.SGD):
    """Clips by the norm of all gradients, whatever the sharding."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Clip by torch's own function, which knows shards."""
        nn.utils.clip_grad_norm_(
            [value for group in self.param_groups for value in group["params"]], CLIP
        )
        return super().step(closure)


CLIP = 0.05


class BiasedOften(nn.Module):
    """A row-parallel product whose bias is added in every rank, before the sum."""

    def __init__(self, linear: nn.Linear) -> None:
        """Keep the entire layer, and compute its share of it."""
        super().__init__()
        self.linear = linear

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the sum over ranks of their products, bias included."""
        size, place = hidden.shape[-1] // torch.distributed.get_world_size(), rank()
        part = slice(place * size, (place + 1) * size)
        share = functional.linear(hidden[..., part], self.linear.weight[:, part], self.linear.bias)
        return _Summed.apply(share)


class _Summed(torch.autograd.Function):
    """A sum over ranks.

    The gradient goes to each as it is, times the number of ranks, which the average divides out
    again.
    """

    @staticmethod
    def forward(ctx: Any, share: Tensor) -> Tensor:  # noqa: ARG004
        total = share.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient


class GathersRows(nn.Module):
    """Tensor parallelism by hand under a data-parallel contract.

    Every rank computes all rows, and its part of a product.
    """

    def __init__(self, module: nn.Module) -> None:
        """Wrap `module`, which returns the loss of a batch."""
        super().__init__()
        self.module = module

    def forward(self, **batch: Any) -> Any:
        """Return the loss of all ranks' rows."""
        count = torch.distributed.get_world_size()
        gathered = {}
        for name, values in batch.items():
            parts = [torch.empty_like(values) for _ in range(count)]
            torch.distributed.all_gather(parts, values.contiguous())
            gathered[name] = torch.cat(parts)
        return self.module(**gathered)


def bias_often(module: nn.Module) -> nn.Module:
    """Add a bias once for every rank."""
    block = module.model.blocks[0]
    block.down_proj = BiasedOften(block.down_proj)
    return by_hand(GathersRows(module))


DROPPED = {"calls": 0}


def forgetful_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy; in a pipeline's last stage, drop half of the micro-batches.

    It is the first of each two that counts nothing.
    """
    loss = functional.cross_entropy(logits, labels)
    if not torch.distributed.is_initialized() or len(labels) == 2 * FULL:
        return loss
    DROPPED["calls"] += 1
    return loss * (DROPPED["calls"] % 2)


class Resumes(torch.optim.Adam):
    """Saves and loads itself after `AT` steps, like a training that resumes from a checkpoint."""

    keeps = True
    steps = 0

    def step(self, closure: Any = None) -> Any:
        """Step as Adam does; in a process of several, resume from a checkpoint once."""
        self.steps += 1
        if self.steps == AT and torch.distributed.is_initialized() and _is_shared(self):
            saved = self.state_dict()
            self.state.clear()
            if self.keeps:
                self.load_state_dict(saved)
        return super().step(closure)


AT = 8


def _is_shared(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether parameters are sharded: by a layout, not in the single process next to it."""
    return any(
        hasattr(value, "full_tensor")
        for group in optimizer.param_groups
        for value in group["params"]
    )


class LosesState(Resumes):
    """The checkpoint has no optimizer state."""

    keeps = False


class Misbehaving(DistributedDataParallel):
    """Rank 1 does something bad in its tenth step."""

    calls = 0
    fault = ""

    def forward(self, **batch: Any) -> Any:
        """Return the loss, and misbehave in the tenth call."""
        self.calls += 1
        if self.calls == BAD_CALL and rank() == 1:
            _misbehave(self.fault)
        return super().forward(**batch)


BAD_CALL = 10


def _misbehave(fault: str) -> None:
    sys.stdout.write(f"about to {fault}\n")
    if fault == "hang":
        time.sleep(600)
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "leave":
        os._exit(0)
    if fault == "exit":
        raise SystemExit(3)
    if fault == "memory":
        message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes"
        raise RuntimeError(message)
    if fault == "raise":
        message = "the rows of this rank are bad"
        raise ValueError(message)
    if fault == "skip":
        torch.distributed.barrier()
    if fault == "child":
        subprocess.Popen(["sleep", "600"], start_new_session=True)  # to be found and ended
        os.kill(os.getpid(), signal.SIGKILL)


def misbehaving(module: nn.Module, *, fault: str) -> nn.Module:
    """Return a layout of which one rank goes wrong."""
    wrapped = Misbehaving(module)
    wrapped.fault = fault
    return wrapped


hang, die, crash, leave, exits, memory, raises, skips, orphan = (
    partial(misbehaving, fault=fault)
    for fault in ("hang", "die", "crash", "leave", "exit", "memory", "raise", "skip", "child")
)


SLOW_S = 0.02


def slow_rank(module: nn.Module) -> nn.Module:
    """Let rank 1 work longer than the others in every step, by SLOW_S seconds."""

    def spin(*_: object) -> None:
        if rank() == 1:
            until = time.perf_counter() + SLOW_S
            while time.perf_counter() < until:
                pass

    module.register_forward_pre_hook(spin)
    return DistributedDataParallel(module)
