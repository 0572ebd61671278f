"""Functions that compute in a narrower type inside, or add up in a row, are right; faults in them are found all the same."""

import pytest

torch = pytest.importorskip("torch")

from functions_builders import agrees, evidence  # noqa: E402

from ci_bench.processes.messages import Keeping, OutputFiles  # noqa: E402
from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.worker.comparing import compare  # noqa: E402
from ci_bench.worker.keeping import FILE, Keeper  # noqa: E402

pytestmark = pytest.mark.engine

PAIR = """
    import numpy

    def mine(x):
        {mine}

    def theirs(x):
        {theirs}

    @ci_bench.benchmark(dtype=["{dtype}"], provider="mine")
    def work(dtype):
        (x,) = ci_bench.inputs(1, {shape}, dtype)
        return lambda: mine(x)

    @work.provider("theirs", reference=True)
    def _(dtype):
        (x,) = ci_bench.inputs(1, {shape}, dtype)
        return lambda: theirs(x)
"""
ALONE = """
    @ci_bench.benchmark(dtype=["{dtype}"])
    def work(dtype):
        (x,) = ci_bench.inputs(1, {shape}, dtype)
        def mine(x):
            {mine}
        return lambda: mine(x)
"""
GRAM = "b = x.bfloat16(); a = b @ b.mT; "
INSIDE = {
    "as it is": ("2.0 * a + 0.5 * a @ a", Outcome.PASS),
    "one product": ("torch.addmm(a, a, a, beta=2.0, alpha=0.5)", Outcome.PASS),
    "factors moved": ("(2.0 * a) + (a @ (0.5 * a))", Outcome.PASS),
    "wider inside": ("(2.0 * a.float() + 0.5 * a.float() @ a.float()).bfloat16()", Outcome.PASS),
    "one per cent": ("1.01 * (2.0 * a + 0.5 * a @ a)", Outcome.FAIL),
    "another scale": ("2.0 * a + 0.51 * a @ a", Outcome.FAIL),
    "a sign": ("2.0 * a - 0.5 * a @ a", Outcome.FAIL),
    "one row": (
        "torch.cat([(2.0 * a + 0.5 * a @ a)[:-1], 1.05 * (2.0 * a + 0.5 * a @ a)[-1:]])",
        Outcome.FAIL,
    ),
    "one element": ("(2.0 * a + 0.5 * a @ a).index_fill_(0, torch.tensor([3]), 0.0)", Outcome.FAIL),
}


@pytest.mark.parametrize("back", ["", ".to(x.dtype)"], ids=["bf16 out", "fp32 out"])
@pytest.mark.parametrize("name", INSIDE)
def test_bf16_inside_has_its_own_rounding(tree, name, back) -> None:
    mine, outcome = INSIDE[name]
    lines = [f"{GRAM}return ({one}){back}" for one in (mine, INSIDE["as it is"][0])]
    found = agrees(
        tree, PAIR.format(mine=lines[0], theirs=lines[1], dtype="fp32", shape="(64, 64)")
    )
    assert (found["mine"].outcome, found["theirs"].outcome) == (outcome, Outcome.PASS), found[
        "mine"
    ].detail
    assert "computes in bf16 inside" in found["mine"].detail


def beside(tree, base, head, **form):
    """What the comparison of head's tensors with base's says."""
    records, paths = [], []
    for place, mine in enumerate((base, head)):
        folder = tree / str(place)
        folder.mkdir()
        keeper = Keeper(folder=folder, keeping=Keeping.EVERYTHING)
        evidence(tree, ALONE.format(mine=mine, **form), keep=keeper.keep)
        records.append(keeper.record)
        paths.append(str(folder / FILE))
    files = OutputFiles(
        base=paths[0], base_digest=records[0].file, head=paths[1], head_digest=records[1].file
    )
    return compare(files, base=records[0].digest)


@pytest.mark.parametrize("name", INSIDE)
def test_bf16_inside_is_known_beside_base(tree, name) -> None:
    mine, outcome = INSIDE[name]
    lines = [f"{GRAM}return ({one}).float()" for one in (INSIDE["as it is"][0], mine)]
    found = beside(tree, *lines, dtype="fp32", shape="(64, 64)")
    assert not found.unknown
    assert any(one.wrong for one in found.worst) == (outcome is Outcome.FAIL), found


SERIAL = "torch.from_numpy(numpy.cumsum(x.numpy(), axis=-1, dtype=numpy.float32)[..., -1].copy())"
SUMS = {
    "a sum of 1e4": (
        "x.abs().sum(-1)",
        SERIAL.replace("x.", "x.abs()."),
        "(10_000,)",
        Outcome.PASS,
    ),
    "a sum of 1e6": (
        "x.abs().sum(-1)",
        SERIAL.replace("x.", "x.abs()."),
        "(1_000_000,)",
        Outcome.PASS,
    ),
    "sums of rows": ("x.sum(-1)", SERIAL, "(16, 20_000)", Outcome.PASS),
    "a mean": (
        "x.square().mean()",
        f"{SERIAL.replace('x.', 'x.square().')} / 200_000",
        "(200_000,)",
        Outcome.PASS,
    ),
    "a norm": (
        "x.norm()",
        f"{SERIAL.replace('x.', 'x.square().')}.sqrt()",
        "(200_000,)",
        Outcome.PASS,
    ),
    "prefixes": (
        "x.abs().cumsum(-1)",
        "(x.abs().flip(-1).cumsum(-1).flip(-1)[:1] - x.abs().flip(-1).cumsum(-1).flip(-1) + x.abs())",
        "(50_000,)",
        Outcome.PASS,
    ),
    "one of 1e4 left out": ("x.abs().sum(-1)", "x.abs()[1:].sum(-1)", "(10_000,)", Outcome.FAIL),
    "a share of 1e6 left out": (
        "x.abs().sum(-1)",
        "x.abs()[500:].sum(-1)",
        "(1_000_000,)",
        Outcome.FAIL,
    ),
    "one of each row left out": ("x.sum(-1)", "x[..., :-1].sum(-1)", "(16, 20_000)", Outcome.FAIL),
    "a mean over n - 1": ("x.abs().mean(-1)", "x.abs().sum(-1) / 9_999", "(10_000,)", Outcome.FAIL),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_in_a_row_are_right(tree, name) -> None:
    theirs, mine, shape, outcome = SUMS[name]
    found = agrees(
        tree,
        PAIR.format(mine=f"return {mine}", theirs=f"return {theirs}", dtype="fp32", shape=shape),
    )
    assert (found["mine"].outcome, found["theirs"].outcome) == (outcome, Outcome.PASS), found[
        "mine"
    ].detail
