"""Models of matrix products and tables: perceptron, autoencoder, recommendation, actor-critic, graph network."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 128


class Perceptron(nn.Module):
    """Three layers with GELU; the first linear layer has a normalisation behind it."""

    def __init__(self, *, inputs: int = 64, classes: int = 10) -> None:
        """`inputs` features to `classes` logits."""
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
        """Logits [batch, classes] of rows [batch, inputs]."""
        logits: Tensor = self.layers(rows)
        return logits


class Autoencoder(nn.Module):
    """Squeezes rows through a narrow code, and gives back both."""

    def __init__(self, *, inputs: int = 96, code: int = 12) -> None:
        """Rows of `inputs` numbers through a code of `code`."""
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, WIDTH), nn.SiLU(), nn.Linear(WIDTH, code))
        self.decoder = nn.Sequential(nn.Linear(code, WIDTH), nn.SiLU(), nn.Linear(WIDTH, inputs), nn.Sigmoid())

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The rows made again [batch, inputs] and their codes [batch, code]."""
        code = self.encoder(rows)
        return {"rebuilt": self.decoder(code), "code": code}


class Recommender(nn.Module):
    """Embedding bags for sparse features, a perceptron for dense ones, and their pairwise products, as in DLRM."""

    def __init__(self, *, tables: int = 4, rows: int = 500, dense: int = 13, width: int = 16) -> None:
        """`tables` of `rows` embeddings of `width`; `dense` dense features."""
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, offset=-1), persistent=False)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Click logits [batch] of dense features [batch, dense] and ids [batch, tables, ids]."""
        low = self.bottom(dense)
        features = torch.stack([low, *(table(sparse[:, index]) for index, table in enumerate(self.tables))], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        logits: Tensor = self.top(torch.cat([low, products], dim=1)).squeeze(1)
        return logits


class ActorCritic(nn.Module):
    """A shared trunk, a Gaussian policy with a learned spread, and a value: two heads with losses of different kinds."""

    def __init__(self, *, observations: int = 24, actions: int = 6) -> None:
        """`observations` numbers in, a mean and a spread for each of `actions` out."""
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observations, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.policy = nn.Linear(WIDTH, actions)
        self.log_spread = nn.Parameter(torch.full((actions,), -0.5))
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means [batch, actions], spreads [batch, actions] and values [batch]."""
        features = self.trunk(observations)
        means = torch.tanh(self.policy(features))
        return means, self.log_spread.exp().expand_as(means), self.value(features).squeeze(1)


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges: gather, transform, scatter-add; then the mean over nodes of each graph."""

    def __init__(self, *, features: int = 16, width: int = 48, classes: int = 5) -> None:
        """Nodes of `features` numbers; graphs of `classes`."""
        super().__init__()
        self.first = nn.Linear(2 * features, width)
        self.second = nn.Linear(2 * width, width)
        self.keep = nn.Linear(features, width)
        self.head = nn.Linear(width, classes)

    def forward(self, nodes: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        """Logits [graphs, classes] of nodes [n, features], edges [2, m] and the graph of each node [n]."""
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
        gathered = torch.zeros(nodes.shape[0], message.shape[1], dtype=message.dtype, device=nodes.device)
        return gathered.scatter_add(0, end.unsqueeze(1).expand_as(message), message)
