"""One comparison for each way a gate ends, made by the judge from two results documents as the engine writes them.

The golden files are rendered from these: no headline, finding or reason in them is written by hand.
"""

import hashlib
import random
from dataclasses import replace
from functools import cache

from report_builders import CONDITION, GPU
from report_documents import ARMS, Documents, _evidence, _frame

from ci_bench.commands.judging import Baseline, judge
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.config import Floor, Policy, SuitePolicy
from ci_bench.records.outputs import OutputsComparison, ReferenceOutputs, TensorError, Weights
from ci_bench.records.profiles import GraphBreak, Profile, ProfileRow, RowKind, SourceLine
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Check,
    Environment,
    Failure,
    Lane,
    Launch,
    Metric,
    Outcome,
    Results,
    Status,
    Unit,
)

HEAD, BASE = "head", "base"
LAUNCHES, BLOCKS, NOISE = 6, 4, 0.004
REVIEWS, HALF, SMALL = (
    ("training_loss", "reviews", {"backend": "inductor", "precision": "fp32"}),
    ("training_loss", "reviews", {"backend": "inductor", "precision": "amp_bf16"}),
    ("training_loss", "small", {"backend": "inductor", "precision": "fp32"}),
)
TUNED = "inductor+max-autotune-no-cudagraphs"


def time(side, arm, seconds, *, name="step_time", noise=NOISE, launches=LAUNCHES):
    """A time of both sides in turns: `seconds` each, with noise inside and between launches."""
    dice = random.Random(f"{side} {arm} {name} {seconds}")
    drawn = []
    for number in range(launches):
        level = seconds * dice.gauss(1.0, noise)
        drawn.append(
            Launch(
                launch=number,
                values=tuple(level * dice.gauss(1.0, noise) for _ in range(2 * BLOCKS)),
                warmup=(seconds * 3,),
                blocks=tuple(block for block in range(BLOCKS) for _ in range(2)),
                steady=True,
            )
        )
    return Metric(
        name=name,
        arm=arm,
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=tuple(drawn),
        items=16,
    )


def single(name, arm, unit, value, *, launches=LAUNCHES):
    values = tuple(Launch(launch=number, values=(value,)) for number in range(launches))
    return Metric(
        name=name, arm=arm, unit=unit, better=Better.LOWER, lane=Lane.COUNTERS, launches=values
    )


def peak(arm, mib):
    return single("peak_allocated", arm, Unit.BYTES, mib * 2.0**20)


def graphs(arm, number):
    return single("graphs", arm, Unit.COUNT, float(number))


def times(side, eager=0.215, inductor=0.133, **fields):
    return (time(side, "eager", eager, **fields), time(side, "inductor", inductor, **fields))


def row(identity, *metrics, arms=ARMS, status=Status.OK, **fields):
    """A row of the ledger, as the engine writes it."""
    suite, name, params = identity
    shown = ",".join(f"{key}={value}" for key, value in params.items())
    id_ = f"{suite}/{name}[{shown}]" if shown else f"{suite}/{name}"
    case = Case(id=id_, suite=suite, name=name, params=params, arms=arms, reference=arms[0])
    row = CaseResult(case=case, status=status, reproduce=f"ci-bench run --filter '{id_}'")
    return replace(row, metrics=metrics, **fields)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def computed(content, *errors):
    """The outputs of the reference arm; `errors` are (tensor, deviation, allowance) against base."""
    start = Weights(names=digest("names"), named=digest("weights"), ordered=digest("weights"))
    worst = tuple(
        TensorError(name=name, error=error, allowed=allowed) for name, error, allowed in errors
    )
    beside = OutputsComparison(base=digest("base"), tensors=204, worst=worst) if errors else None
    return ReferenceOutputs(
        arm="eager",
        tensors=204,
        size_bytes=4096,
        digest=digest(content),
        start=start,
        inputs=digest("inputs"),
        file=digest(f"file of {content}"),
        beside=beside,
    )


def compiled(outcome=Outcome.PASS, detail="1 graph, 0 breaks"):
    return Check(name="compiled", arm="inductor", outcome=outcome, detail=detail)


def results(side, *rows, identity=GPU):
    """A results document of one side."""
    frame = _frame(side)
    return Results(
        **(frame | {"environment": Environment(identity=identity, condition=CONDITION)}), cases=rows
    )


def judged(
    head,
    base,
    *,
    mode=BaselineMode.PAIRED,
    policy=None,
    absence=None,
    calibration: Calibration | None = None,
):
    """Both documents and the judge's comparison of them."""
    baseline = Baseline(mode=mode, results=base, absence=absence)
    comparison = judge(
        head, baseline, policy=policy or Policy(), folder=None, calibration=calibration
    )
    return Documents(comparison, head, base)


def both(build, **options):
    return judged(results(HEAD, *build(HEAD)), results(BASE, *build(BASE)), **options)


def passed() -> Documents:
    """Nothing is slower, one case is faster."""

    def build(side):
        faster = 0.0198 if side == HEAD else 0.0214
        yield row(
            REVIEWS,
            *times(side),
            peak("inductor", 1240),
            parity=_evidence(side, 1, 40),
            outputs=computed("base"),
        )
        yield row(
            SMALL,
            *times(side, 1.9e-3, 842e-6),
            peak("inductor", 310),
            checks=(compiled(),),
            outputs=computed("base"),
        )
        yield row(
            HALF,
            *times(side, 0.03, faster),
            peak("inductor", 820),
            checks=(compiled(),),
            outputs=computed("base"),
        )

    return both(build)


def regressed() -> Documents:
    """One case is slower and takes more memory and graphs; another is too noisy."""

    def build(side):
        slower, mib, count = (0.1437, 1383, 3) if side == HEAD else (0.1328, 1240, 1)
        yield row(SMALL, *times(side, 1.9e-3, 842e-6), peak("inductor", 310))
        yield row(
            REVIEWS,
            *times(side, 0.215, slower),
            peak("inductor", mib),
            graphs("inductor", count),
            checks=(
                compiled(),
                Check(
                    name="accuracy",
                    arm="inductor",
                    outcome=Outcome.UNKNOWN,
                    detail="no reference output",
                ),
            ),
        )
        yield row(
            HALF,
            *times(side, 0.03, 0.0219 if side == HEAD else 0.0214, noise=0.06),
            peak("inductor", 820),
        )

    return both(build)


def first_pull_request() -> Documents:
    """Base has none of the benchmarks yet."""

    def build():
        yield row(REVIEWS, *times(HEAD), peak("inductor", 1240), parity=_evidence(HEAD, 1, 40))
        yield row(HALF, *times(HEAD, 0.03, 0.0214), peak("inductor", 820), checks=(compiled(),))

    return judged(results(HEAD, *build()), results(BASE))


def no_baseline() -> Documents:
    """A baseline was asked for, and there is none."""
    head = first_pull_request().head
    return judged(head, None, mode=BaselineMode.FILE, absence="baseline.json does not exist")


def incomparable() -> Documents:
    """Base was measured on another GPU, with an older torch."""

    def build(side):
        yield row(
            REVIEWS, *times(side, 0.215, 0.133 if side == HEAD else 0.26), checks=(compiled(),)
        )

    other = GPU | {"gpu": "NVIDIA A100-SXM4-80GB", "torch": "2.11.0"}
    head, base = results(HEAD, *build(HEAD)), results(BASE, *build(BASE), identity=other)
    return judged(head, base, mode=BaselineMode.FILE)


def parity_broken() -> Documents:
    """A compiled arm leaves the reference's training at step 7; another case computes something else than base."""
    broken = compiled(Outcome.FAIL, "no graph was compiled")
    wrong = computed("other", ("outputs of step 1: logits", 0.75, 2.4e-6))

    def build(side):
        evidence = _evidence(side, 0, 40)  # on head, the compiled arm leaves the envelope at step 7
        yield row(
            REVIEWS, *times(side), parity=evidence, checks=(broken if side == HEAD else compiled(),)
        )
        yield row(
            SMALL, *times(side, 1.9e-3, 842e-6), outputs=wrong if side == HEAD else computed("base")
        )
        short = replace(
            evidence, traces=tuple(_cut(one) for one in evidence.traces if one.role != "perturbed")
        )
        yield row(HALF, *times(side, 0.03, 0.0214), parity=short if side == HEAD else None)

    return both(build)


def _cut(trace, steps=5):
    return replace(trace, loss=trace.loss[:steps], grad_norm=trace.grad_norm[:steps])


def failed_cases() -> Documents:
    """Cases that end in different ways, or are gone."""
    train, serve, export = (("command", name, {}) for name in ("train", "serve", "export"))
    oom = 'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    loss.backward()\n'
    oom += "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n```\nreported by @nobody, see #12\n"

    def ended(identity, status, reason, log="", **fields):
        failure = Failure(stage="time", arms=ARMS, reason=reason, log_tail=log, **fields)
        return row(identity, status=status, failure=failure)

    def build(side):
        yield row(REVIEWS, *times(side), checks=(compiled(),))
        if side == BASE:
            yield row(HALF, *times(side, 0.03, 0.0214))
            yield row(train, *times(side), arms=ARMS)
            yield row(export, *times(side), arms=ARMS)
            return
        yield ended(SMALL, Status.SKIPPED, "needs cuDNN")
        yield ended(HALF, Status.OUT_OF_MEMORY, "CUDA out of memory", oom)
        yield ended(train, Status.CRASHED, "ended by SIGSEGV", "step 1\nstep 2\n", signal="SIGSEGV")
        yield row(serve, *times(side))

    return both(build)


def undecided() -> Documents:
    """A case that may be slower, on a machine too noisy to say."""

    def build(side):
        yield row(REVIEWS, *times(side), outputs=computed("base"))
        yield row(
            HALF,
            *times(side, 0.03, 0.0225 if side == HEAD else 0.0214, noise=0.05, launches=4),
            outputs=computed("base"),
        )

    return both(build)


def explained() -> Documents:
    """A slower case whose step was profiled on both sides, and one whose profile is missing."""

    def profile(side):
        slow = (
            (operator("aten::copy_", 0.0055, "model.py:42", "y = y.contiguous()"),)
            if side == HEAD
            else ()
        )
        rows = (
            operator("aten::mm", 0.121, "model.py:7", "x @ w"),
            operator("aten::add", 0.0071, "model.py:8", "x + b"),
            *slow,
        )
        breaks = (
            (GraphBreak(reason="Data-dependent branching", place="model.py:12"),)
            if side == HEAD
            else ()
        )
        return Profile(
            arm="inductor",
            step_s=sum(one.seconds for one in rows),
            steps=9,
            rows=rows,
            breaks=breaks,
        )

    def build(side):
        slower = 1.051 if side == HEAD else 1.0
        missing = Profile(
            arm="inductor", step_s=None, steps=0, rows=(), unknown="profiling took more than 90 s"
        )
        yield row(REVIEWS, *times(side, 0.215, 0.133 * slower), profiles=(profile(side),))
        yield row(HALF, *times(side, 0.03, 0.0214 * slower), profiles=(missing,))

    return both(build)


def operator(name, seconds, at, code):
    return ProfileRow(
        name=name,
        kind=RowKind.OPERATOR,
        lines=(SourceLine(place=at, code=code),),
        calls=2.0,
        seconds=seconds,
    )


def graph_breaks() -> Documents:
    """A line that dynamo cannot trace: breaks, and what they bring with them, in one case and in a group of cases."""
    found = "11 graphs of 90 operations, 4 breaks, 1 recompiles. Unsupported: print at attend.py:566 in forward (4x)"

    def counts(side):
        head = {"graphs": 11, "graph_breaks": 4, "recompiles": 1, "fallbacks": 3}
        base = {"graphs": 1, "graph_breaks": 0, "recompiles": 0, "fallbacks": 0}
        for name, number in (head if side == HEAD else base).items():
            yield single(name, "inductor", Unit.COUNT, float(number))

    def build(side):
        check = compiled(detail=found) if side == HEAD else compiled()
        yield row(("torchbench", "decoder", {}), *times(side), *counts(side), checks=(check,))
        for number in range(3):
            identity = ("torchbench", "encoder", {"batch": str(2**number)})
            yield row(identity, *times(side, 0.03, 0.0214), *counts(side), checks=(check,))

    return both(build)


def common_shift() -> Documents:
    """Against an earlier run: everything is slower together, and a candidate is below its floor."""

    def build(side):
        by = 1.41 if side == HEAD else 1.0
        for number in range(4):
            identity = ("training_loss", f"net{number}", {"precision": "fp32"})
            yield row(
                identity,
                *times(side, 0.2 * by, (0.19 if number == 0 else 0.12) * by),
                peak("inductor", 820),
            )

    policy = Policy(drift=0.05, suites={"training_loss": SuitePolicy(floors={Floor.SPEEDUP: 1.2})})
    return both(build, mode=BaselineMode.FILE, policy=policy)


def several_modes() -> Documents:
    """Three compiled arms in each of two cases."""

    def build(side):
        for name, speedups in (
            ("mlp", {"inductor": 1.62, TUNED: 1.84, "aot_eager": 0.97}),
            ("resnet", {"inductor": 1.31, TUNED: 1.33, "aot_eager": 0.95}),
        ):
            identity = ("torchbench", name, {"mode": "inference", "precision": "fp32"})
            arms = ("eager", *speedups)
            metrics = [
                time(side, "eager", 0.133),
                *(time(side, arm, 0.133 / by) for arm, by in speedups.items()),
            ]
            checks = tuple(
                Check(name=check, arm=arm, outcome=Outcome.PASS, detail="ok")
                for arm in speedups
                for check in ("compiled", "accuracy")
            )
            yield row(identity, *metrics, arms=arms, checks=checks)

    return both(build)


def grouped() -> Documents:
    """Cases that got slower together, and two more."""

    def build(side):
        for number in range(40):
            kind = "bf16" if number < 10 else "fp32"
            slower = side == HEAD and (kind == "bf16" or number > 37)
            identity = ("functions", "attention", {"dtype": kind, "length": str(64 * (number + 1))})
            yield row(
                identity,
                time(side, "attention", 1e-3 * (number + 1) * (1.08 if slower else 1.0)),
                arms=("attention",),
            )

    return both(build)


def many_regressions() -> Documents:
    """More changes than the first table shows."""

    def build(side):
        for number in range(14):
            slower = 1.04 + 0.01 * number if side == HEAD and number < 12 else 1.0
            yield row(
                ("functions", f"kernel{number:02d}", {}),
                time(side, "kernel", 1e-3 * slower),
                arms=("kernel",),
            )

    return both(build)


BUILDERS = {
    one.__name__: one
    for one in (
        passed,
        regressed,
        first_pull_request,
        no_baseline,
        incomparable,
        parity_broken,
        failed_cases,
        undecided,
        explained,
        graph_breaks,
        common_shift,
        several_modes,
        grouped,
        many_regressions,
    )
}


@cache
def ending(name: str) -> Documents:
    """The documents and the comparison of one ending."""
    return BUILDERS[name]()


def compared(name: str) -> Comparison:
    """The comparison of one ending."""
    return ending(name).comparison
