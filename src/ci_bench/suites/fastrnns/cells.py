"""One time step of each recurrent cell, in TorchScript's subset of Python: all forms run it.

Shapes: x (B, I), hidden and cell states (B, H), weights as torch.nn's (W_ih (4H, I), W_hh (4H, H),
biases (4H)), gates in the order i, f, g, o. A leading `xw` is x W_ih^T, computed beforehand for all
steps together. TorchScript has no keyword-only arguments, so there are many positional ones.
"""

import torch
from torch import Tensor

State = tuple[Tensor, Tensor]

EPSILON = 1e-5
"""That of `torch.nn.LayerNorm`; TorchScript cannot read it from here, so the cells repeat it."""


def gated(z: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the LSTM's state from the gates' sums: c' = f c + i g, h' = o tanh(c')."""
    i, f, g, o = z.chunk(4, 1)
    new_cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(new_cell), new_cell


def lstm_cell(  # noqa: PLR0917
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the common LSTM cell: z = x W_ih^T + h W_hh^T + b_ih + b_hh."""
    hidden, cell = state
    return gated(torch.mm(x, w_ih.t()) + torch.mm(hidden, w_hh.t()) + b_ih + b_hh, cell)


def premul_cell(
    xw: Tensor, state: tuple[Tensor, Tensor], w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the LSTM cell on the step's share of the large product, adding both biases."""
    hidden, cell = state
    return gated(xw + torch.mm(hidden, w_hh.t()) + b_ih + b_hh, cell)


def premul_bias_cell(
    xw: Tensor, state: tuple[Tensor, Tensor], w_hh: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the LSTM cell as `premul_cell` does, with b_ih in the large product already."""
    hidden, cell = state
    return gated(xw + torch.mm(hidden, w_hh.t()) + b_hh, cell)


def milstm_cell(  # noqa: PLR0917
    x: Tensor,
    state: tuple[Tensor, Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    alpha: Tensor,
    beta_ih: Tensor,
    beta_hh: Tensor,
    bias: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run the cell with multiplicative integration: z = alpha Wx Uh + beta_i Wx + beta_h Uh + b.

    The formula is equation 4 of https://arxiv.org/abs/1606.06630.
    """
    hidden, cell = state
    wx = torch.mm(x, w_ih.t())
    uh = torch.mm(hidden, w_hh.t())
    return gated(alpha * wx * uh + beta_ih * wx + beta_hh * uh + bias, cell)


def gru_cell(  # noqa: PLR0917
    x: Tensor, hidden: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> Tensor:
    """Run the GRU cell: n = tanh(W_n x + r (U_n h)), h' = n + z (h - n).

    The gates r, z, n are in blocks of H.
    """
    r_x, z_x, n_x = (torch.mm(x, w_ih.t()) + b_ih).chunk(3, 1)
    r_h, z_h, n_h = (torch.mm(hidden, w_hh.t()) + b_hh).chunk(3, 1)
    reset = torch.sigmoid(r_x + r_h)
    update = torch.sigmoid(z_x + z_h)
    new = torch.tanh(n_x + reset * n_h)
    return new + update * (hidden - new)


def relu_cell(  # noqa: PLR0917
    x: Tensor, hidden: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> Tensor:
    """Run the ReLU cell: h' = relu(x W_ih^T + h W_hh^T + b_ih + b_hh)."""
    return torch.relu(torch.mm(x, w_ih.t()) + torch.mm(hidden, w_hh.t()) + b_ih + b_hh)


def tanh_cell(  # noqa: PLR0917
    x: Tensor, hidden: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> Tensor:
    """Run the tanh cell: h' = tanh(x W_ih^T + h W_hh^T + b_ih + b_hh)."""
    return torch.tanh(torch.mm(x, w_ih.t()) + torch.mm(hidden, w_hh.t()) + b_ih + b_hh)


def library_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalise over the last dimension, by the library."""
    return torch.layer_norm(x, [x.size(-1)], weight, bias, 1e-5)


def written_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalise by hand: (x - mean) / sqrt(biased variance + epsilon) * weight + bias."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias
