"""Tensors that are kept and compared: what is a change, what is not, and files that cannot be trusted."""

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402 - after torch is known to be there

from ci_bench.checkouts.sides import Side  # noqa: E402
from ci_bench.processes.messages import Keeping, OutputFiles  # noqa: E402
from ci_bench.records.config import RunOptions  # noqa: E402
from ci_bench.records.outputs import ReferenceOutputs  # noqa: E402
from ci_bench.records.results import Case, SideName  # noqa: E402
from ci_bench.runner import beside as beside_module  # noqa: E402
from ci_bench.runner.beside import OutputsBesideBase, OutputsOptions  # noqa: E402
from ci_bench.runner.ledger import Ledger  # noqa: E402
from ci_bench.suites.contract import Computed  # noqa: E402
from ci_bench.suites.shared.worker.digests import digest, digests  # noqa: E402
from ci_bench.suites.shared.worker.optimizers import UPDATES  # noqa: E402
from ci_bench.worker import keeping  # noqa: E402
from ci_bench.worker.comparing import EXACT, Pairs, compare, paired  # noqa: E402
from ci_bench.worker.keeping import FILE, Keeper, file_digest  # noqa: E402

pytestmark = pytest.mark.engine
FP32, BF16 = 2.0**-24, 2.0**-8
ROWS, WIDTH = 16, 64


def layer(x, weight, *, scale=1.0, eps=1e-5, order=slice(None), logit=0.0, tokens=None):
    """A linear layer and a normalisation: `order` is the order of its sum, the rest are planted changes."""
    y = x[:, order] @ weight[:, order].T
    y = (
        (y - y.mean(-1, keepdim=True))
        / (y.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
        * scale
    )
    y = y.clone()
    y[3, 5] += logit
    return {
        "outputs of step 1: 0": y,
        "outputs of step 1: tokens": y.argmax(-1) if tokens is None else tokens,
    }


def computed(*, dtype=torch.float32, epsilon=FP32, exact=True, shakes=2, **changes):
    generator = torch.Generator().manual_seed(3)
    drawn = (torch.randn(n, WIDTH, generator=generator, dtype=torch.float64) for n in (ROWS, WIDTH))
    x, weight = (
        (one / WIDTH**0.25).to(dtype) for one in drawn
    )  # so that what is normalised has a variance of one
    noise = [
        1 + epsilon * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        for _ in range(shakes)
    ]
    return Computed(
        arm="eager",
        epsilon=epsilon,
        outputs=layer(x, weight, **changes),
        start=digests([("weight", weight)]),
        inputs=[digest(x)],
        runs=[layer(x, (weight.double() * one).to(dtype), **changes) for one in noise],
        truth=layer(x.double(), weight.double(), **changes) if exact else None,
    )


@pytest.fixture
def keep(tmp_path):
    """Keeps what was computed in a folder of its own: its record, and its file."""

    def kept(name, one, how=Keeping.EVERYTHING):
        (tmp_path / name).mkdir(exist_ok=True)
        keeper = Keeper(folder=tmp_path / name, keeping=how)
        keeper.keep(one)
        return keeper.record, tmp_path / name / FILE

    return kept


@pytest.fixture
def beside(keep):
    """Head's tensors held against base's."""

    def compared(base, head):
        (theirs, base_file), (ours, head_file) = (
            keep("base", base),
            keep("head", head, Keeping.OUTPUTS),
        )
        assert theirs.start.same_as(ours.start)
        files = OutputFiles(
            base=str(base_file), base_digest=theirs.file, head=str(head_file), head_digest=ours.file
        )
        return compare(files, base=theirs.digest)

    return compared


PLANTED = {
    "one and a half times": {"scale": 1.5},
    "a twentieth of a per cent": {"scale": 1.0005},
    "an epsilon in the norm": {"eps": 1e-6},
    "one logit": {"logit": 0.01},
    "one token": {"tokens": torch.arange(ROWS)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_what_is_planted_is_a_change_in_any_precision(beside, planted, dtype) -> None:
    epsilon = FP32 if dtype is torch.float32 else BF16
    found = beside(
        computed(dtype=dtype, epsilon=epsilon), computed(dtype=dtype, epsilon=epsilon, **planted)
    )
    assert not found.unknown
    assert found.worst[0].wrong, found.worst


@pytest.mark.parametrize("exact", [True, False], ids=["fp64", "no fp64"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_another_order_of_the_sum_is_no_change(beside, dtype, exact) -> None:
    more = {"dtype": dtype, "epsilon": torch.finfo(dtype).eps / 2, "exact": exact}
    tokens = torch.zeros(
        ROWS
    )  # the likeliest token of a random row may hang on rounding, and is no part of this
    backward = torch.arange(WIDTH - 1, -1, -1)
    found = beside(computed(tokens=tokens, **more), computed(tokens=tokens, order=backward, **more))
    assert not found.unknown
    assert not any(one.wrong for one in found.worst), found.worst


@pytest.mark.parametrize(("scale", "wrong"), [(1.0005, True), (1 + 4e-6, False)])
def test_without_truth_or_runs_half_of_the_digits_is_a_change_and_less_is_unknown(
    beside, scale, wrong
) -> None:
    bare = {"exact": False, "shakes": 0, "tokens": torch.zeros(ROWS)}
    found = beside(computed(**bare), computed(scale=scale, **bare))
    assert found.worst[0].wrong
    assert bool(found.unknown) is not wrong


def test_what_is_smaller_than_its_own_rounding_tells_nothing(beside) -> None:
    def noise(seed):
        return {
            "gradients of step 1: bias": 1e-9
            * torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed))
        }

    plain = Computed(arm="eager", epsilon=FP32, outputs=noise(1), runs=[noise(2), noise(3)])
    found = beside(plain, replace(plain, outputs=noise(4)))
    assert "larger than its own rounding" in found.unknown


def test_a_tensor_of_another_form_or_none_at_all_is_a_change(beside) -> None:
    base = computed()
    wider = {name: value.double() for name, value in base.outputs.items()}
    assert "float64" in beside(base, replace(base, outputs=wider)).worst[0].fault
    fewer = {"outputs of step 1: 0": base.outputs["outputs of step 1: 0"]}
    found = beside(base, replace(base, outputs=fewer, truth=None))
    assert (found.worst[0].name, found.worst[0].fault) == (
        "outputs of step 1: tokens",
        "head does not compute it",
    )


def moved(scale=1.0):
    return {
        f"{UPDATES}: weight": scale * torch.randn(WIDTH, generator=torch.Generator().manual_seed(5))
    }


@pytest.mark.parametrize(("scale", "wrong"), [(1.002, True), (1.00005, False)])
@pytest.mark.parametrize("epsilon", [FP32, BF16])
def test_what_an_optimizer_makes_of_known_gradients_is_held_to_its_own_digits(
    beside, epsilon, scale, wrong
) -> None:
    tokens = torch.zeros(ROWS)
    base, head = (
        replace(one, outputs=one.outputs | moved(factor), epsilon=epsilon)
        for factor in (1.0, scale)
        for one in (computed(tokens=tokens, epsilon=epsilon),)
    )
    found = beside(base, head)
    assert [one.name for one in found.worst if one.wrong] == [f"{UPDATES}: weight"] * wrong


def test_an_optimizer_that_one_side_alone_could_try_is_a_remark_and_no_change(beside) -> None:
    base = computed()
    tried = replace(base, outputs=base.outputs | moved())
    for theirs, ours, which in ((tried, base, "head"), (base, tried, "base")):
        found = beside(theirs, ours)
        assert (found.unknown, found.remark) == (
            "",
            f"{which}'s optimizer could not be tried on known gradients",
        )
        assert not any(one.wrong for one in found.worst)


@pytest.mark.parametrize(
    "name", ["input: 0", "input of the last call: 0", "outputs of step 1: inputs.0"]
)
def test_inputs_written_by_one_side_are_a_change(beside, name) -> None:
    plain = computed()
    writing = replace(plain, outputs={**plain.outputs, name: torch.ones(3)})
    for base, head, said in ((plain, writing, "head writes"), (writing, plain, "base writes")):
        worst = beside(base, head).worst[0]
        assert (worst.name, worst.wrong, worst.fault.startswith(said)) == (name, True, True)
    assert not any(one.wrong for one in beside(writing, writing).worst)


def test_more_than_base_computes_is_a_remark(beside) -> None:
    base = computed()
    found = beside(
        base, replace(base, outputs={**base.outputs, "outputs of step 1: 2": torch.ones(3)})
    )
    assert found.remark == "1 more that base does not compute"
    assert not any(one.wrong for one in found.worst)


@pytest.mark.parametrize(
    ("theirs", "ours", "pairs"),
    [
        (
            {"a": "x", "b": "y"},
            {"b": "y", "a": "x"},
            Pairs(named={"a": "a", "b": "b"}, guessed={}, missing=(), extra=0),
        ),
        (
            {"a": "x", "b": "x"},
            {"c": "x", "d": "x"},
            Pairs(named={"a": "c", "b": "d"}, guessed={}, missing=(), extra=0),
        ),
        (
            {"a": "x"},
            {"c": "y", "d": "x"},
            Pairs(named={}, guessed={"a": "d"}, missing=(), extra=1),
        ),
        (
            {"a": "x", "b": "y"},
            {"a": "x"},
            Pairs(named={"a": "a"}, guessed={}, missing=("b",), extra=0),
        ),
        ({"a": "x"}, {"c": "y"}, Pairs(named={}, guessed={}, missing=("a",), extra=1)),
    ],
    ids=["by name", "renamed in order", "among others", "gone", "of another form"],
)
def test_which_tensor_stands_against_which(theirs, ours, pairs) -> None:
    assert paired(theirs, ours) == pairs


def test_renamed_tensors_are_compared_and_a_change_in_them_is_seen(beside) -> None:
    base = computed(exact=False)

    def renamed(one):
        return replace(
            one,
            outputs={name.replace(": ", ": model."): value for name, value in one.outputs.items()},
        )

    assert not any(one.wrong for one in beside(base, renamed(base)).worst)
    assert beside(base, renamed(computed(scale=1.5, exact=False))).worst[0].wrong


def test_names_that_cannot_be_paired_for_certain_are_unknown_and_no_change(beside) -> None:
    base = computed(exact=False)
    other = {
        "outputs of step 1: score": torch.ones(2),
        "outputs of step 1: logits": 2 * base.outputs["outputs of step 1: 0"],
    }
    found = beside(base, replace(base, outputs=other))
    assert "head computes tensors with other names" in found.unknown


def test_the_worst_is_named_with_its_figures_and_fp64_shows_what_bf16_hides(beside) -> None:
    more = {"dtype": torch.bfloat16, "epsilon": BF16, "tokens": torch.zeros(ROWS)}
    found = beside(computed(**more), computed(scale=1.0005, **more))
    wrong = [one for one in found.worst if one.wrong]
    assert [one.name for one in wrong] == [f"{EXACT}outputs of step 1: 0"]
    assert wrong[0].error == pytest.approx(0.0005 * ROWS**0.5 * WIDTH**0.5, rel=0.1)


def test_digests_tell_start_inputs_and_random_numbers_apart(keep) -> None:
    base = computed()
    record, _ = keep("base", base)
    assert replace(keep("again", base)[0], file=record.file) == record
    other, _ = keep("other", replace(base, inputs=[], start={}, generators=[torch.get_rng_state()]))
    assert (other.digest, other.inputs == record.inputs, other.start.same_as(record.start)) == (
        record.digest,
        False,
        False,
    )
    assert (record.drawn, bool(other.drawn)) == (None, True)
    renamed, _ = keep("renamed", replace(base, start={"model.weight": base.start["weight"]}))
    assert renamed.start.same_as(record.start)


@pytest.mark.parametrize("value", [
    torch.randn(3, 4).T, torch.tensor(3.0), torch.randn(2, dtype=torch.complex64), torch.randn(4, 4).to_sparse(), torch.empty(0),
    torch.ones(2, dtype=torch.bool), torch.randn(4, requires_grad=True), torch.ones(2, 2).expand(2, 2),
], ids=["strided", "a number", "complex", "sparse", "empty", "bool", "gradient", "expanded"])  # fmt: skip
def test_any_tensor_is_kept_and_is_itself(beside, keep, value) -> None:
    one = Computed(
        arm="eager",
        epsilon=FP32,
        outputs={"outputs of step 1: 0": value},
        runs=[{"outputs of step 1: 0": value}],
    )
    record, _ = keep("any", one)
    assert (record.tensors, record.remark) == (1, "")
    assert not any(error.wrong for error in beside(one, one).worst)


def test_nothing_is_written_where_nobody_compares(keep) -> None:
    record, file = keep("alone", computed(), Keeping.NOTHING)
    assert (record.file, file.exists(), record.remark) == (None, False, "the tensors were not kept")


def test_what_is_too_large_is_kept_without_its_runs_and_then_not_at_all(keep, monkeypatch) -> None:
    one = computed()
    size = sum(value.numel() * value.element_size() for value in one.outputs.values())
    truth = sum(value.numel() * value.element_size() for value in one.truth.values())
    for room, held in (
        (10 * size, {"outputs", "truth", "run0", "run1"}),
        (size + truth, {"outputs", "truth"}),
    ):
        monkeypatch.setattr(keeping, "MAX_BYTES", room)
        _, file = keep("large", one)
        assert {name.partition(".")[0] for name in load_file(file)} == held
    for room, said in (
        (size, "with a run that shows their rounding"),
        (size - 1, "are more than is kept"),
    ):
        monkeypatch.setattr(keeping, "MAX_BYTES", room)
        record, _ = keep("larger", replace(one, runs=()) if room == size else one)
        assert record.file is None
        assert said in record.remark


def test_a_full_disk_ends_nothing(tmp_path) -> None:
    keeper = Keeper(folder=tmp_path / "not there", keeping=Keeping.EVERYTHING)
    keeper.keep(computed())
    assert keeper.record.file is None
    assert keeper.record.remark.startswith("the tensors could not be kept: ")


def _cut(path):
    path.write_bytes(path.read_bytes()[:-8])


def _no_header(path):
    path.write_bytes(b"\xff" * 64)


def _rewritten(**metadata):
    def rewrite(path):
        told = {
            "names": '["a"]',
            "runs": "0",
            "jolts": "0",
            "epsilon": "1e-7",
            "truth": "False",
            **metadata,
        }
        save_file(
            {"outputs.0": torch.ones(2)},
            path,
            metadata={name: value for name, value in told.items() if value},
        )

    return rewrite


HOSTILE = {
    "cut": (_cut, "not a sound file"),
    "no header": (_no_header, "not a sound file"),
    "no names": (_rewritten(names=""), "do not say what they are"),
    "names that are none": (_rewritten(names='{"a": 1}'), "not a list of strings"),
    "a name twice": (_rewritten(names='["a", "a"]'), "comes twice"),
    "a name without a tensor": (_rewritten(names='["a", "b"]'), "listed but missing"),
    "a nested bomb": (_rewritten(names="[" * 100_000), "do not say what they are"),
    "too many runs": (_rewritten(runs="1000000000"), "out of bounds"),
    "rounding that is none": (_rewritten(epsilon="nan"), "out of bounds"),
    "a long name": (_rewritten(names=json.dumps(["a" * 501])), "too long"),
}


@pytest.mark.parametrize(("spoil", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_an_unknown_with_its_reason(keep, spoil, said) -> None:
    (record, file), (ours, own) = keep("base", computed()), keep("head", computed())
    spoil(file)
    files = OutputFiles(
        base=str(file), base_digest=file_digest(file), head=str(own), head_digest=ours.file
    )
    found = compare(files, base=record.digest)
    assert said in found.unknown
    assert found.worst == ()


def test_another_file_than_the_document_names_is_not_read(keep) -> None:
    (record, file), (ours, own) = keep("base", computed()), keep("head", computed())
    files = OutputFiles(
        base=str(own), base_digest=record.file, head=str(file), head_digest=ours.file
    )
    save_file({"outputs.0": torch.ones(2)}, file)
    assert (
        "not those that the results document names"
        in compare(replace(files, base=str(file)), base=record.digest).unknown
    )


def test_a_file_that_is_too_large_or_gone_is_not_read(keep, monkeypatch) -> None:
    record, file = keep("base", computed())
    files = OutputFiles(
        base=str(file), base_digest=record.file, head=f"{file}.gone", head_digest=record.file
    )
    assert "cannot be read" in compare(files, base=record.digest).unknown
    monkeypatch.setattr("ci_bench.worker.comparing.MAX_BYTES", -(64 << 20))
    assert "are read at most" in compare(files, base=record.digest).unknown


@dataclass
class FakeSide:
    """A side of a run that was verified: what it computed is in its folder."""

    name: SideName
    record: ReferenceOutputs
    folder: Path

    def __post_init__(self) -> None:
        self.side, self.claims = Side(name=self.name, environ=dict(os.environ)), {}
        self.ledger = Ledger.open([CASE], reproduce={CASE.id: "again"}).with_outputs(
            CASE, self.record
        )

    def case_folder(self, _: Case) -> Path:
        return self.folder


CASE = Case(id="s/a", suite="s", name="a", params={}, arms=("eager",), reference="eager")


def test_an_interpreter_that_cannot_compare_leaves_an_unknown_with_its_reason(
    keep, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(
        beside_module, "Launcher", partial(beside_module.Launcher, python=Path("/bin/false"))
    )
    runs = []
    for name, one in ((SideName.BASE, computed()), (SideName.HEAD, computed(scale=1.5))):
        record, file = keep(name, one)
        runs.append(FakeSide(name, record, file.parent))
    sides = OutputsBesideBase(
        folder=tmp_path / "own", run_options=RunOptions(), options=OutputsOptions(), runs=runs
    )
    sides.settle(CASE)
    sides.close()
    found = runs[1].ledger.rows[CASE.id].outputs.beside
    assert found.unknown.startswith(
        "the tensors could not be compared: the process that starts the workers stopped answering"
    )
    assert not list(tmp_path.rglob("*.safetensors")), "nothing is left in the scratch"


@pytest.mark.parametrize(
    ("name", "sides", "saved", "kept"),
    [
        (SideName.HEAD, [SideName.HEAD], False, Keeping.NOTHING),
        (SideName.HEAD, [SideName.HEAD], True, Keeping.EVERYTHING),
        (SideName.HEAD, [SideName.BASE, SideName.HEAD], False, Keeping.OUTPUTS),
        (SideName.BASE, [SideName.BASE, SideName.HEAD], False, Keeping.EVERYTHING),
    ],
)
def test_a_side_writes_what_somebody_reads(name, sides, saved, kept) -> None:
    assert OutputsOptions(save={name: Path()} if saved else {}).keeping(name, sides) is kept


def test_a_resumed_case_keeps_what_is_known_of_its_outputs(keep) -> None:
    record, _ = keep("base", computed())
    planned = Ledger.open([CASE], reproduce={CASE.id: "again"})
    earlier = planned.with_outputs(CASE, record).with_launch(CASE, 0).with_success(CASE)
    assert planned.resumed(earlier).rows[CASE.id].outputs == record
    assert planned.resumed(replace(earlier, launches={})).rows[CASE.id].outputs is None


def repeated(*, off=0.0):
    """What was computed, and the same once more, as the same tensors; with an offset, as others."""
    one = computed()

    def twice(run):
        again = {
            name: value if not (off and value.is_floating_point()) else value + off
            for name, value in run.items()
        }
        return {**run, **{f"again {name}": value for name, value in again.items()}}

    return replace(one, outputs=twice(one.outputs), runs=[twice(run) for run in one.runs])


def test_a_tensor_is_written_once_and_compared_under_each_name(keep, beside) -> None:
    _, path = keep("plain", computed())
    _, twice = keep("twice", repeated())
    assert twice.stat().st_size < 1.1 * path.stat().st_size
    assert not any(one.wrong for one in beside(repeated(), repeated()).worst)
    worst = beside(repeated(), repeated(off=0.01)).worst
    assert [one.name for one in worst if one.wrong] == ["again outputs of step 1: 0"]


def test_names_of_tensors_that_are_not_there_are_refused(keep, tmp_path) -> None:
    record, path = keep("base", repeated())
    held, metadata = load_file(path), {}
    from safetensors import safe_open

    with safe_open(path, framework="pt") as stream:
        metadata = stream.metadata()
    save_file(held, path, metadata={**metadata, "same": json.dumps({"outputs.1": "nowhere"})})
    files = OutputFiles(
        base=str(path), base_digest=file_digest(path), head=str(path), head_digest=file_digest(path)
    )
    assert "do not say what they are" in compare(files, base=record.digest).unknown
