"""Layouts of more than one dimension, which `layout_parity` trains, too.

They are right or have one injected fault: stages of a pipeline of any length, context parallelism
by hand (each process has a part of every sequence), torch's own, and replicas of shards that are
never averaged.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, union-attr, arg-type"
# As users write it, over what torch leaves unannotated.

from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_gather, all_reduce
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.layout_gallery import Block, Net, by_hand, rank
from ci_bench.suites.contract import Unsupported


class Part(nn.Module):
    """Some blocks of a net, with its embedding before the first and its head after the last."""

    def __init__(self, net: Net, stage: int, count: int) -> None:
        """Take the part of `stage` of `count`, which are as many as blocks or fewer."""
        super().__init__()
        blocks = len(net.blocks)
        self.embed = None if stage else net.embed
        self.blocks = nn.ModuleList(
            net.blocks[blocks * stage // count : blocks * (stage + 1) // count]
        )
        self.head = net.head if stage == count - 1 else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Map tokens in the first stage, and return logits from the last."""
        if self.embed is not None:
            hidden = self.embed(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden if self.head is None else self.head(hidden.mean(dim=1))


def parts(net: Net, stage: int, count: int) -> nn.Module:
    """Return a stage of a pipeline."""
    return Part(net, stage, count)


def of_all_processes(rows: Tensor) -> Tensor:
    """Return every process's rows, one's after the other's."""
    parts = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def own_loss(net: Net, hidden: Tensor, length: int, labels: Tensor) -> Tensor:
    """Return the mean loss of this process's rows.

    Their sequences of so many tokens are spread over all processes.
    """
    pooled = all_reduce(hidden.sum(dim=1)) / length
    rows = len(labels)
    return functional.cross_entropy(net.head(pooled)[rows * rank() : rows * (rank() + 1)], labels)


class InContext(nn.Module):
    """A net that computes in each process its part of all sequences.

    It uses the keys and values of all; the loss is that of the process's own rows.
    """

    def __init__(self, net: Net, *, gathered: bool) -> None:
        """Wrap the net; without `gathered` a process attends to its own part only."""
        super().__init__()
        self.net, self.gathered = net, gathered

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of this process's rows; all processes have equally many."""
        count, length = torch.distributed.get_world_size(), tokens.shape[1]
        part = of_all_processes(tokens)[
            :, length * rank() // count : length * (rank() + 1) // count
        ]
        hidden = self.net.embed(part)
        for block in self.net.blocks:
            hidden = self._block(block, hidden)
        return own_loss(self.net, hidden, length, labels)

    def _block(self, block: Any, hidden: Tensor) -> Tensor:
        normed = block.first(hidden)
        key, value = (self._of_all(project(normed)) for project in (block.k_proj, block.v_proj))
        query, key, value = (
            part.unflatten(-1, (-1, block.size)).transpose(1, 2)
            for part in (block.q_proj(normed), key, value)
        )
        mixed = (
            functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        )
        hidden = hidden + block.dropout(block.o_proj(mixed))
        return hidden + block.down_proj(functional.gelu(block.up_proj(block.second(hidden))))

    def _of_all(self, part: Tensor) -> Tensor:
        return torch.cat(all_gather(part.contiguous()), dim=1) if self.gathered else part


def context(module: nn.Module) -> nn.Module:
    """Apply context parallelism by hand, with gradients averaged (right)."""
    by_hand(module)
    return InContext(module.model, gathered=True)


def context_without_others(module: nn.Module) -> nn.Module:
    """Never gather keys and values of the other processes."""
    by_hand(module)
    return InContext(module.model, gathered=False)


class InTorchContext(nn.Module):
    """A net like `InContext`, by torch's own context parallelism.

    That shards the sequences and patches attention.
    """

    def __init__(self, net: Net, kernels: list[SDPBackend]) -> None:
        """Wrap the net, whose attention takes one of `kernels`."""
        super().__init__()
        self.net, self.kernels = net, kernels

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of this process's rows; all processes have equally many."""
        sequences, length = of_all_processes(tokens), tokens.shape[1]
        mesh = init_device_mesh(tokens.device.type, (torch.distributed.get_world_size(),))
        with (
            sdpa_kernel(self.kernels),
            context_parallel(mesh, buffers=[sequences], buffer_seq_dims=[1]),
        ):
            hidden = self.net.embed(
                sequences.clone()
            )  # its own, since the context puts the buffer back
            for block in self.net.blocks:
                hidden = block(hidden)
        return own_loss(self.net, hidden, length, labels)


def torch_context(module: nn.Module) -> nn.Module:
    """Apply torch's own context parallelism (right).

    On the CPU it has only the plain formula of attention.
    """
    by_hand(module)
    return InTorchContext(module.model, [SDPBackend.MATH])


def torch_context_fused(module: nn.Module) -> nn.Module:
    """Apply torch's own with the attention that the device usually takes.

    Raises `Unsupported` if torch has none for it, which skips the case.
    """
    device = next(module.parameters()).device
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    hidden = torch.ones(1, 8, 16, device=device)
    try:
        with context_parallel(mesh, buffers=[hidden], buffer_seq_dims=[1]):
            Block(16, 4, 0.0).to(device)(hidden).sum().backward()
    except NotImplementedError as error:
        reason = (
            f"torch's context parallelism has no fused attention for {device.type} here: {error}"
        )
        raise Unsupported(reason) from error
    by_hand(module)
    return InTorchContext(
        module.model, [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    )


def drifting(module: nn.Module) -> nn.Module:
    """Shard in groups of two, as `hsdp` does, and let one weight of one replica drift.

    The last rank's part of it grows before each step.
    """
    count = torch.distributed.get_world_size()
    fully_shard(
        module, mesh=init_device_mesh("cpu", (count // 2, 2), mesh_dim_names=("outer", "inner"))
    )
    weight: Any = module.model.head.weight

    @torch.no_grad()
    def grow(*_: object) -> None:
        if rank() == count - 1:
            weight.to_local().mul_(1 + 2.0**-20)

    module.register_forward_pre_hook(grow, prepend=True)
    return module


def lone_replicas(module: nn.Module) -> nn.Module:
    """Shard in groups of two, as `hsdp` does, but average gradients only within a group."""
    count = torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (count // 2, 2), mesh_dim_names=("outer", "inner"))
    fully_shard(module, mesh=mesh["inner"])
    return module
