"""Models of images: plain CNN, residual network, U-Net, vision transformer, diffusion block."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ci_bench.suites.torchbench.zoo.sequence import Block


class PlainCnn(nn.Module):
    """Convolution, pooling, and dropout before the last layer."""

    def __init__(self, *, classes: int = 10) -> None:
        """Images of three channels to `classes` logits."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Logits [batch, classes] of images [batch, 3, 16, 16]."""
        logits: Tensor = self.head(self.features(images))
        return logits


class Residual(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        """From `channels` to `wider`, each `stride`-th pixel."""
        super().__init__()
        self.one = nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False)
        self.norm_one = nn.BatchNorm2d(wider)
        self.two = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norm_two = nn.BatchNorm2d(wider)
        self.around = nn.Conv2d(channels, wider, 1, stride=stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, channels, h, w] to [batch, wider, h / stride, w / stride]."""
        inner = functional.relu(self.norm_one(self.one(images)))
        return functional.relu(self.norm_two(self.two(inner)) + self.around(images))


class ResNet(nn.Module):
    """A stem and three residual blocks; its running statistics are buffers that training changes."""

    def __init__(self, *, classes: int = 10) -> None:
        """Images of three channels to `classes` logits."""
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.blocks = nn.Sequential(Residual(12, 12, 1), Residual(12, 24, 2), Residual(24, 24, 1))
        self.head = nn.Linear(24, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [batch, classes] of images [batch, 3, 16, 16]."""
        logits: Tensor = self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))
        return logits


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a bridge between, for a class for each pixel."""

    def __init__(self, *, classes: int = 4, width: int = 8) -> None:
        """Images of three channels to `classes` logits per pixel."""
        super().__init__()
        self.down = self._pair(3, width)
        self.bottom = self._pair(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.top = self._pair(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _pair(channels: int, wider: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(channels, wider, 3, padding=1),
            nn.InstanceNorm2d(wider, affine=True),
            nn.LeakyReLU(0.1),
            nn.Conv2d(wider, wider, 3, padding=1),
            nn.LeakyReLU(0.1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits [batch, classes, 16, 16] of images [batch, 3, 16, 16]."""
        fine = self.down(images)
        coarse = self.up(self.bottom(functional.max_pool2d(fine, 2)))
        logits: Tensor = self.head(self.top(torch.cat([fine, coarse], dim=1)))
        return logits


class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions, two blocks of attention."""

    def __init__(self, *, patch: int = 4, side: int = 16, width: int = 48, classes: int = 10) -> None:
        """Images of `side` pixels, in patches of `patch`."""
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads=3) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [batch, classes] of images [batch, 3, 16, 16]."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        hidden = torch.cat([self.token.expand(patches.shape[0], -1, -1), patches], dim=1) + self.positions
        for block in self.blocks:
            hidden = block(hidden, causal=False)
        logits: Tensor = self.head(self.norm(hidden)[:, 0])
        return logits


class DiffusionBlock(nn.Module):
    """A denoiser's inner block: group normalisation, a time embedding that scales and shifts, attention over pixels."""

    def __init__(self, *, width: int = 24) -> None:
        """Latents of four channels, `width` inside."""
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, 2 * width))
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.leave = nn.Conv2d(width, 4, 3, padding=1)
        self.rates: Tensor
        self.register_buffer("rates", torch.exp(-torch.arange(8) * 0.9), persistent=False)

    def forward(self, latents: Tensor, time: Tensor) -> Tensor:
        """The predicted noise [batch, 4, 8, 8] in latents of that shape at times [batch] in 0..1."""
        phase = 100 * time[:, None] * self.rates
        scale, shift = self.time(torch.cat([phase.sin(), phase.cos()], dim=1)).chunk(2, dim=1)
        hidden = self.enter(latents)
        inner = self.norm(hidden) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        hidden = hidden + self.conv(functional.silu(inner))
        pixels = hidden.flatten(2).transpose(1, 2)
        mixed, _ = self.attention(pixels, pixels, pixels, need_weights=False)
        noise: Tensor = self.leave(hidden + mixed.transpose(1, 2).reshape(hidden.shape))
        return noise
