"""Models of sequences: LSTM tagger, encoder, decoder. `Block` is a transformer's layer, shared with the images."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a perceptron, each normalised before and added after; dropout where asked."""

    def __init__(self, width: int, *, heads: int, dropout: float = 0.0) -> None:
        """`width` numbers per position, shared by `heads`."""
        super().__init__()
        self.heads = heads
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(dropout))

    def forward(self, hidden: Tensor, *, causal: bool) -> Tensor:
        """[batch, positions, width] to the same; `causal` hides what comes later."""
        batch, positions, width = hidden.shape
        qkv = self.qkv(self.norm_one(hidden)).view(batch, positions, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        hidden = hidden + self.mix(seen.transpose(1, 2).reshape(batch, positions, width))
        added: Tensor = hidden + self.inner(self.norm_two(hidden))
        return added


class Tagger(nn.Module):
    """Embeddings through an LSTM to a tag for each position; the last state comes out as well.

    Position by position: dynamo compiles nothing of a model that holds `nn.LSTM`.
    """

    def __init__(self, *, words: int = 200, width: int = 32, tags: int = 7) -> None:
        """A vocabulary of `words`, `tags` per position."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, tags)

    def forward(self, words: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits [batch, positions, tags] of ids [batch, positions], and the LSTM's state."""
        inputs = self.embedding(words)
        hidden = cell = torch.zeros_like(inputs[:, 0])
        states = []
        for position in range(words.shape[1]):
            hidden, cell = self.cell(inputs[:, position], (hidden, cell))
            states.append(hidden)
        return self.head(torch.stack(states, dim=1)), (hidden, cell)


class Encoder(nn.Module):
    """Reads both ways, with dropout, and classifies by the mean over what is no padding."""

    def __init__(self, *, words: int = 200, width: int = 48, positions: int = 24, classes: int = 5) -> None:
        """Texts of up to `positions` ids out of `words`."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.blocks = nn.ModuleList(Block(width, heads=4, dropout=0.1) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Logits [batch, classes] of ids [batch, positions], where `mask` is true for words and false for padding."""
        hidden = self.embedding(words) + self.positions[: words.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, causal=False)
        weights = mask.unsqueeze(2).to(hidden.dtype)
        logits: Tensor = self.head((self.norm(hidden) * weights).sum(1) / weights.sum(1))
        return logits


class Decoder(nn.Module):
    """A causal language model whose last layer shares its weights with the embedding."""

    def __init__(self, *, words: int = 200, width: int = 48, positions: int = 24) -> None:
        """Texts of up to `positions` ids out of `words`."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.blocks = nn.ModuleList(Block(width, heads=4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        """Logits [batch, positions, words] of ids [batch, positions]."""
        hidden = self.embedding(words) + self.positions[: words.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, causal=True)
        logits: Tensor = self.head(self.norm(hidden))
        return logits
