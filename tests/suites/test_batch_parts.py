"""Which rows a process has, and what parts of a batch are of the whole: what is none of these is refused."""

import pytest

torch = pytest.importorskip("torch")

from ci_bench.suites.contract import Unsupported  # noqa: E402 - after torch was found
from ci_bench.suites.shared.worker.batch_parts import (  # noqa: E402
    BatchKind,
    FoundParts,
    combined,
    parts_of,
    read_found,
)

ROWS, COUNT = 7, 3
BATCH = (
    torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0)),
    torch.ones(2),
    {"ids": torch.arange(ROWS)},
)
EXACT = torch.finfo(torch.float32).eps


def test_parts_are_all_rows_in_their_order_and_nothing_else_is_cut() -> None:
    parts = parts_of(ROWS, COUNT)
    assert [part.own for part in parts] == [2, 2, 3]
    cut = [part.cut(BATCH) for part in parts]
    assert torch.equal(torch.cat([rows for rows, _, _ in cut]), BATCH[0])
    assert [each["ids"].tolist() for _, _, each in cut] == [[0, 1], [2, 3], [4, 5, 6]]
    assert all(other is BATCH[1] for _, other, _ in cut)
    assert cut[0][0].data_ptr() == BATCH[0].data_ptr(), "a view"


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (BatchKind.ROWS, lambda rows: 2 * rows),
        (BatchKind.ROWS, lambda rows: rows > 0),
        (BatchKind.SAME, lambda rows: torch.full((2,), float(rows.shape[1]))),
        (BatchKind.MEAN, lambda rows: rows.square().mean()),
        (BatchKind.MEAN, lambda rows: rows.mean(dim=0)),
        (BatchKind.SUM, lambda rows: rows.square().sum()),
        (BatchKind.SUM, lambda rows: torch.tensor([len(rows)])),
        (BatchKind.ROOT, lambda rows: rows.square().sum() / rows.numel() ** 0.5),
    ],
)
def test_what_parts_are_of_the_whole_is_found_out(kind, left) -> None:
    assert combined(lambda batch: {"left": left(batch[0])}, BATCH, ROWS, COUNT, epsilon=EXACT) == {
        "left": kind
    }


@pytest.mark.parametrize(
    "left",
    [
        lambda rows: (rows - rows.mean(dim=0)) / rows.std(dim=0),
        lambda rows: rows.flip(0),
        lambda rows: rows.mean().square(),
        lambda rows: rows @ rows.T,
        lambda rows: (1 + 1e-3 * (len(rows) < ROWS)) * rows.mean(),
    ],
    ids=["batch norm", "another order", "of a mean", "of pairs", "a thousandth off"],
)
def test_what_is_nothing_of_the_whole_is_refused_by_name(left) -> None:
    with pytest.raises(Unsupported, match="computes left differently for part of a batch"):
        combined(lambda batch: {"left": left(batch[0])}, BATCH, ROWS, COUNT, epsilon=EXACT)


def test_a_process_without_a_row_is_refused() -> None:
    with pytest.raises(
        Unsupported, match="2 rows are too few for 3 processes; use a larger `batch_size`"
    ):
        parts_of(2, 3)


@pytest.mark.parametrize("kind", [BatchKind.MEAN, BatchKind.SUM, BatchKind.ROOT])
def test_the_mean_of_weighed_gradients_is_that_of_the_whole_loss(kind) -> None:
    of = {
        BatchKind.MEAN: lambda rows, weight: (rows @ weight).square().mean(),
        BatchKind.SUM: lambda rows, weight: (rows @ weight).square().sum(),
        BatchKind.ROOT: lambda rows, weight: (rows @ weight).square().sum() / len(rows) ** 0.5,
    }[kind]

    def gradient(rows, factor):
        weight = torch.ones(5, requires_grad=True)
        (of(rows, weight) * factor).backward()
        return weight.grad

    parts = parts_of(ROWS, COUNT)
    own = [gradient(part.cut(BATCH)[0], part.factor(kind)) for part in parts]
    torch.testing.assert_close(torch.stack(own).mean(dim=0), gradient(BATCH[0], 1.0))


def test_what_was_found_is_read_as_it_was_written(tmp_path) -> None:
    found = FoundParts(
        rows=7, kinds={"loss": BatchKind.MEAN, "outputs.0": BatchKind.ROWS}, is_random=True
    )
    found.write(tmp_path)
    assert read_found(tmp_path) == found
