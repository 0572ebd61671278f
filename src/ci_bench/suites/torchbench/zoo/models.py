"""Models of the embedded zoo: matrix products and tables, sequences, images.

Perceptron, autoencoder, recommendation, actor-critic, graph network; LSTM tagger, encoder, decoder
(`TransformerBlock` is shared with the images); plain CNN, residual network, U-Net, vision
transformer, diffusion block.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 128


class Perceptron(nn.Module):
    """Three layers with GELU; the first linear layer has a normalisation behind it."""

    def __init__(self, *, inputs: int = 64, classes: int = 10) -> None:
        """Map `inputs` features to `classes` logits."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, WIDTH),
            nn.LayerNorm(WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, classes),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits [batch, classes] of rows [batch, inputs]."""
        logits: Tensor = self.layers(rows)
        return logits


class Autoencoder(nn.Module):
    """Squeezes rows through a narrow code, and gives back both."""

    def __init__(self, *, inputs: int = 96, code: int = 12) -> None:
        """Pass rows of `inputs` numbers through a code of `code`."""
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, WIDTH), nn.SiLU(), nn.Linear(WIDTH, code))
        self.decoder = nn.Sequential(
            nn.Linear(code, WIDTH), nn.SiLU(), nn.Linear(WIDTH, inputs), nn.Sigmoid()
        )

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the rows made again [batch, inputs] and their codes [batch, code]."""
        code = self.encoder(rows)
        return {"rebuilt": self.decoder(code), "code": code}


class Recommender(nn.Module):
    """Embedding bags for sparse features, a perceptron for dense ones, and pairwise products.

    As in DLRM.
    """

    def __init__(
        self, *, tables: int = 4, rows: int = 500, dense: int = 13, width: int = 16
    ) -> None:
        """Make `tables` of `rows` embeddings of `width`; `dense` dense features."""
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU()
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.pairs: Tensor
        self.register_buffer(
            "pairs", torch.tril_indices(tables + 1, tables + 1, offset=-1), persistent=False
        )

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Return click logits [batch] of features [batch, dense] and ids [batch, tables, ids]."""
        low = self.bottom(dense)
        features = torch.stack(
            [low, *(table(sparse[:, index]) for index, table in enumerate(self.tables))], dim=1
        )
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        logits: Tensor = self.top(torch.cat([low, products], dim=1)).squeeze(1)
        return logits


class ActorCritic(nn.Module):
    """A shared trunk, a Gaussian policy with a learned spread, and a value.

    The two heads have losses of different kinds.
    """

    def __init__(self, *, observations: int = 24, actions: int = 6) -> None:
        """Map `observations` numbers to a mean and a spread for each of `actions`."""
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(observations, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()
        )
        self.policy = nn.Linear(WIDTH, actions)
        self.log_spread = nn.Parameter(torch.full((actions,), -0.5))
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return means [batch, actions], spreads [batch, actions] and values [batch]."""
        features = self.trunk(observations)
        means = torch.tanh(self.policy(features))
        return means, self.log_spread.exp().expand_as(means), self.value(features).squeeze(1)


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges, then the mean over nodes of each graph.

    A message is gathered, transformed, and added by scattering.
    """

    def __init__(self, *, features: int = 16, width: int = 48, classes: int = 5) -> None:
        """Map nodes of `features` numbers to graphs of `classes`."""
        super().__init__()
        self.first = nn.Linear(2 * features, width)
        self.second = nn.Linear(2 * width, width)
        self.keep = nn.Linear(features, width)
        self.head = nn.Linear(width, classes)

    def forward(self, nodes: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        """Return logits [graphs, classes].

        They are of nodes [n, features], edges [2, m] and the graph of each node [n].
        """
        hidden = self.keep(nodes) + self._messages(self.first, nodes, edges)
        hidden = functional.relu(hidden)
        hidden = functional.relu(hidden + self._messages(self.second, hidden, edges))
        graphs = 8
        total = torch.zeros(graphs, hidden.shape[1], dtype=hidden.dtype, device=hidden.device)
        total = total.index_add(0, graph, hidden)
        logits: Tensor = self.head(total / (nodes.shape[0] / graphs))
        return logits

    @staticmethod
    def _messages(layer: nn.Linear, nodes: Tensor, edges: Tensor) -> Tensor:
        start, end = edges[0], edges[1]
        message = functional.relu(layer(torch.cat([nodes[start], nodes[end]], dim=1)))
        gathered = torch.zeros(
            nodes.shape[0], message.shape[1], dtype=message.dtype, device=nodes.device
        )
        return gathered.scatter_add(0, end.unsqueeze(1).expand_as(message), message)


class TransformerBlock(nn.Module):
    """Attention and a perceptron, each normalised before and added after; dropout on request."""

    def __init__(self, width: int, *, heads: int, dropout: float = 0.0) -> None:
        """Share `width` numbers per position among `heads`."""
        super().__init__()
        self.heads = heads
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(dropout)
        )

    def forward(self, hidden: Tensor, *, causal: bool) -> Tensor:
        """Map [batch, positions, width] to the same; `causal` hides later positions."""
        batch, positions, width = hidden.shape
        qkv = self.qkv(self.norm_one(hidden)).view(
            batch, positions, 3, self.heads, width // self.heads
        )
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        hidden = hidden + self.mix(attended.transpose(1, 2).reshape(batch, positions, width))
        added: Tensor = hidden + self.inner(self.norm_two(hidden))
        return added


class Tagger(nn.Module):
    """Embeddings through an LSTM to a tag for each position; the last state comes out as well.

    Position by position: dynamo compiles nothing of a model that holds `nn.LSTM`.
    """

    def __init__(self, *, words: int = 200, width: int = 32, tags: int = 7) -> None:
        """Take a vocabulary of `words`, and give `tags` per position."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, tags)

    def forward(self, words: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return logits [batch, positions, tags] of ids [batch, positions], and the last state."""
        inputs = self.embedding(words)
        hidden = cell = torch.zeros_like(inputs[:, 0])
        states = []
        for position in range(words.shape[1]):
            hidden, cell = self.cell(inputs[:, position], (hidden, cell))
            states.append(hidden)
        return self.head(torch.stack(states, dim=1)), (hidden, cell)


class Encoder(nn.Module):
    """Reads both ways, with dropout, and classifies by the mean over all ids except padding."""

    def __init__(
        self, *, words: int = 200, width: int = 48, positions: int = 24, classes: int = 5
    ) -> None:
        """Read texts of up to `positions` ids out of `words`."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.blocks = nn.ModuleList(TransformerBlock(width, heads=4, dropout=0.1) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Return logits [batch, classes] of ids [batch, positions].

        `mask` is true for words and false for padding.
        """
        hidden = self.embedding(words) + self.positions[: words.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, causal=False)
        weights = mask.unsqueeze(2).to(hidden.dtype)
        logits: Tensor = self.head((self.norm(hidden) * weights).sum(1) / weights.sum(1))
        return logits


class Decoder(nn.Module):
    """A causal language model whose last layer shares its weights with the embedding."""

    def __init__(self, *, words: int = 200, width: int = 48, positions: int = 24) -> None:
        """Read texts of up to `positions` ids out of `words`."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.blocks = nn.ModuleList(TransformerBlock(width, heads=4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        """Return logits [batch, positions, words] of ids [batch, positions]."""
        hidden = self.embedding(words) + self.positions[: words.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, causal=True)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class PlainCnn(nn.Module):
    """Convolution, pooling, and dropout before the last layer."""

    def __init__(self, *, classes: int = 10) -> None:
        """Map images of three channels to `classes` logits."""
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
        """Return logits [batch, classes] of images [batch, 3, 16, 16]."""
        logits: Tensor = self.head(self.features(images))
        return logits


class Residual(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        """Map `channels` to `wider`, with each `stride`-th pixel."""
        super().__init__()
        self.one = nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False)
        self.norm_one = nn.BatchNorm2d(wider)
        self.two = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norm_two = nn.BatchNorm2d(wider)
        self.around = nn.Conv2d(channels, wider, 1, stride=stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Map images [batch, channels, h, w] to [batch, wider, h / stride, w / stride]."""
        inner = functional.relu(self.norm_one(self.one(images)))
        return functional.relu(self.norm_two(self.two(inner)) + self.around(images))


class ResNet(nn.Module):
    """A stem and three residual blocks; training changes the buffers of its statistics."""

    def __init__(self, *, classes: int = 10) -> None:
        """Map images of three channels to `classes` logits."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU()
        )
        self.blocks = nn.Sequential(Residual(12, 12, 1), Residual(12, 24, 2), Residual(24, 24, 1))
        self.head = nn.Linear(24, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [batch, classes] of images [batch, 3, 16, 16]."""
        logits: Tensor = self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))
        return logits


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a bridge between, for a class for each pixel."""

    def __init__(self, *, classes: int = 4, width: int = 8) -> None:
        """Map images of three channels to `classes` logits per pixel."""
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
        """Return logits [batch, classes, 16, 16] of images [batch, 3, 16, 16]."""
        fine = self.down(images)
        coarse = self.up(self.bottom(functional.max_pool2d(fine, 2)))
        logits: Tensor = self.head(self.top(torch.cat([fine, coarse], dim=1)))
        return logits


class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions, two blocks of attention."""

    def __init__(
        self, *, patch: int = 4, side: int = 16, width: int = 48, classes: int = 10
    ) -> None:
        """Cut images of `side` pixels into patches of `patch`."""
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(TransformerBlock(width, heads=3) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [batch, classes] of images [batch, 3, 16, 16]."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        hidden = (
            torch.cat([self.token.expand(patches.shape[0], -1, -1), patches], dim=1)
            + self.positions
        )
        for block in self.blocks:
            hidden = block(hidden, causal=False)
        logits: Tensor = self.head(self.norm(hidden)[:, 0])
        return logits


class DiffusionBlock(nn.Module):
    """A denoiser's inner block: group normalisation, a time embedding, attention over pixels.

    The time embedding scales and shifts.
    """

    def __init__(self, *, width: int = 24) -> None:
        """Map latents of four channels, with `width` inside."""
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
        """Predict the noise [batch, 4, 8, 8] in latents of that shape at times [batch] in 0..1."""
        phase = 100 * time[:, None] * self.rates
        scale, shift = self.time(torch.cat([phase.sin(), phase.cos()], dim=1)).chunk(2, dim=1)
        hidden = self.enter(latents)
        inner = self.norm(hidden) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        hidden = hidden + self.conv(functional.silu(inner))
        pixels = hidden.flatten(2).transpose(1, 2)
        mixed, _ = self.attention(pixels, pixels, pixels, need_weights=False)
        noise: Tensor = self.leave(hidden + mixed.transpose(1, 2).reshape(hidden.shape))
        return noise
