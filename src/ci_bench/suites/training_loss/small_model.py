"""A text classifier that is compiled in a second, for the quickstart and the self-test."""

from torch import Tensor, nn


class Classifier(nn.Module):
    """The mean of the embeddings of a text, and two layers."""

    def __init__(self, *, tokens: int = 1024, width: int = 128, classes: int = 5) -> None:
        """Take the size of the vocabulary (`tokens`), the width, and the number of classes."""
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, classes)
        )

    def forward(self, *, input_ids: Tensor, attention_mask: Tensor, **_: Tensor) -> Tensor:
        """Map tokens [rows, length] to logits [rows, classes]."""
        mask = attention_mask.unsqueeze(-1).to(self.embed.weight.dtype)
        logits: Tensor = self.layers((self.embed(input_ids) * mask).sum(1) / mask.sum(1))
        return logits
