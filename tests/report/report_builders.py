"""Comparisons to render: small builders with sensible defaults, and one whole comparison for each kind of ending."""

from dataclasses import replace
from typing import Any

from ci_bench.records.causes import Cause, CausePart, MemoryPart
from ci_bench.records.comparison import (
    AccuracyParity,
    ArmSpeedup,
    BaselineMode,
    CaseComparison,
    CommonShift,
    ComparedSide,
    Comparison,
    Finding,
    Interval,
    Judgement,
    MeanSpeedup,
    Mismatch,
    Pair,
    Pairing,
    Parity,
    ParityFinding,
    RunVerdict,
    SeedRule,
    SpeedupChange,
    Summary,
    Tier,
    Verdict,
)
from ci_bench.records.config import UNANSWERED, Rule, Severity
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import title_of
from ci_bench.records.outputs import OutputsFinding, Sameness, TensorError
from ci_bench.records.profiles import GraphBreak, RowKind
from ci_bench.records.results import (
    Better,
    Check,
    Environment,
    Masks,
    Outcome,
    Run,
    RunState,
    Source,
    Status,
    Unit,
)

GPU: dict[str, Fact] = {
    "gpu": "NVIDIA H200",
    "gpu_memory_bytes": 150_109_028_352,
    "driver": "580.65.06",
    "cuda": "13.0",
    "cudnn": "9.13.0",
    "torch": "2.13.0",
    "triton": "3.5.0",
    "python": "3.11.9",
    "deterministic": False,
}
CONDITION: dict[str, Fact] = {
    "temperature_c": 41,
    "power_limit_w": 700,
    "other_processes": 0,
    "throttled": False,
    "load_1m": None,
}
REVIEWS = "training_loss/reviews[backend=inductor,precision=fp32]"
SMALL = "training_loss/small[backend=aot_eager,precision=fp32]"
HALF = "training_loss/reviews[backend=inductor,precision=amp_bf16]"


def pair(
    metric: str = "step_time",
    arm: str = "inductor",
    verdict: Verdict = Verdict.UNCHANGED,
    **fields: Any,
) -> Pair:
    """A pair of medians; the speedup follows from them unless given."""
    base, head = fields.pop("base", 0.133), fields.pop("head", 0.1331)
    spread = fields.pop("spread", 0.008)
    speedup = fields.pop("speedup", base / head if base and head else None)
    bounds = (
        Interval(low=speedup - spread, high=speedup + spread, level=0.95)
        if speedup and spread
        else None
    )
    return Pair(
        metric=metric,
        arm=arm,
        unit=fields.pop("unit", Unit.SECONDS),
        better=fields.pop("better", Better.LOWER),
        verdict=verdict,
        reason=fields.pop("reason", "within the threshold of 5 %"),
        threshold=fields.pop("threshold", 0.05),
        base=None if base is None else Summary(median=base, samples=24, launches=3),
        head=None if head is None else Summary(median=head, samples=24, launches=3),
        speedup=speedup,
        interval=bounds,
        items=fields.pop("items", 16 if metric == "step_time" else None),
        title=title_of(metric),
    )


def memory(
    verdict: Verdict = Verdict.UNCHANGED,
    arm: str = "inductor",
    base: float | None = 1.30e9,
    head: float | None = 1.30e9,
) -> Pair:
    """Peak memory, compared exactly."""
    reason = "the same in every launch"
    return pair(
        "peak_allocated",
        arm,
        verdict,
        base=base,
        head=head,
        unit=Unit.BYTES,
        spread=0,
        reason=reason,
        threshold=0.005,
    )


def graphs(
    arm: str = "inductor",
    base: float | None = 1,
    head: float | None = 1,
    verdict: Verdict = Verdict.UNCHANGED,
) -> Pair:
    """A number of compiled graphs."""
    return pair(
        "graphs",
        arm,
        verdict,
        base=base,
        head=head,
        unit=Unit.COUNT,
        spread=0,
        reason="a count",
        threshold=0.0,
    )


def speedup(
    value: float = 1.62, base: float | None = 1.62, metric: str = "step_time", arm: str = "inductor"
) -> ArmSpeedup:
    """The arm against eager."""
    bounds = Interval(low=value - 0.02, high=value + 0.02, level=0.95)
    return ArmSpeedup(
        metric=metric, arm=arm, reference="eager", speedup=value, interval=bounds, base_speedup=base
    )


def parity(verdict: Parity = Parity.NUMERIC_PARITY, **fields: Any) -> ParityFinding:
    """A training run within its rounding envelope, unless told otherwise."""
    defaults: dict[str, Any] = {
        "arm": "inductor",
        "tier": Tier.NUMERIC,
        "masks": Masks.ALIGNED,
        "steps": 120,
        "detail": "every step lies within the envelope",
        "limit": 10.0,
        "loss_score": 0.82,
        "grad_norm_score": 1.31,
        "accuracy": AccuracyParity(
            reference=0.915,
            candidate=0.910,
            spread=0.004,
            limit=0.026,
            holds=True,
            detail="-0.50 points, limit 2.60",
        ),
        "seed_rule": SeedRule(passed=True, detail="0.212 against 0.209 + 0.1"),
    }
    return ParityFinding(verdict=verdict, **(defaults | fields))


def check(
    name: str = "really_compiled",
    outcome: Outcome = Outcome.PASS,
    detail: str = "1 graph, 0 breaks",
) -> Check:
    """A check of the compiled arm."""
    return Check(name=name, arm="inductor", outcome=outcome, detail=detail)


def outputs(verdict: Sameness, **fields: Any) -> OutputsFinding:
    """What head's eager arm computes beside base's."""
    worst = (
        TensorError(name="outputs of step 1: logits", error=3.1e-7, allowed=2.4e-6),
        TensorError(name="loss of step 1: the loss", error=0.0, allowed=1.1e-6),
    )
    detail = "204 tensors as base's: outputs of step 1: logits is off by 3.1e-07, and rounding explains 2.4e-06 at most"
    return OutputsFinding(
        **{
            "arm": "eager",
            "verdict": verdict,
            "detail": detail,
            "tensors": 204,
            "worst": worst,
            **fields,
        }
    )


def case(id: str = REVIEWS, verdict: Verdict = Verdict.UNCHANGED, **fields: Any) -> CaseComparison:  # noqa: A002 - the field's name
    """A case that ended well on both sides."""
    defaults: dict[str, Any] = {
        "suite": id.partition("/")[0],
        "reason": "every metric within its threshold",
        "base_status": Status.OK,
        "head_status": Status.OK,
        "reproduce": f"ci-bench run --filter '{id}'",
        "pairs": (pair(), memory(), graphs()),
        "speedups": (speedup(),),
        "checks": (check(),),
        "reference": "eager",
    }
    return CaseComparison(id=id, verdict=verdict, **(defaults | fields))


def side(commit: str, branch: str, identity: dict[str, Fact] = GPU) -> ComparedSide:
    """A complete run on the GPU."""
    run = Run(
        id="20260102T030405Z",
        started_at="2026-01-02T03:04:05Z",
        state=RunState.COMPLETE,
        config_digest="c0ffee",
        device="cuda",
    )
    environment = Environment(identity=identity, condition=CONDITION)
    return ComparedSide(
        run=run,
        source=Source(commit=commit, branch=branch, dirty=False),
        environment=environment,
        tool_version="0.1.0",
    )


def comparison(
    *cases: CaseComparison, headline: str, findings: tuple[Finding, ...] = (), **fields: Any
) -> Comparison:
    """Head against base; it passes when no finding fails it."""
    failing = any(finding.severity is Severity.FAIL for finding in findings)
    defaults: dict[str, Any] = {
        "tool_version": "0.1.0",
        "mode": BaselineMode.FILE,
        "head": side("4be1a7c09d2f5e6a8b3c1d0e9f7a6b5c4d3e2f10", "faster-loader"),
        "base": side("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "main"),
        "absence": None,
        "mismatches": (),
    }
    unanswered = any(
        finding.severity is Severity.WARN and finding.rule in UNANSWERED for finding in findings
    )
    verdict = (
        RunVerdict.FAILED if failing else RunVerdict.UNDECIDED if unanswered else RunVerdict.PASSED
    )
    judgement = Judgement(
        verdict=verdict, exit_code=int(failing), headline=headline, findings=findings
    )
    return Comparison(cases=cases, judgement=judgement, **(defaults | fields))


def fail(rule: Rule, message: str, case: str | None = None) -> Finding:
    """A finding that turns the run red."""
    return Finding(rule=rule, severity=Severity.FAIL, message=message, case=case)


def passed() -> Comparison:
    """Nothing changed, one case is faster."""
    faster = pair(
        verdict=Verdict.IMPROVED,
        base=0.0214,
        head=0.0198,
        reason="8 % faster, the threshold is 5 %",
    )
    return comparison(
        case(REVIEWS, parity=(parity(),)),
        case(
            SMALL,
            pairs=(pair(base=842e-6, head=841e-6, arm="aot_eager"), memory(arm="aot_eager")),
            speedups=(speedup(2.31, 2.31, arm="aot_eager"),),
        ),
        case(HALF, Verdict.IMPROVED, pairs=(faster, memory()), speedups=(speedup(1.48, 1.37),)),
        headline="3 of 3 cases compared: 1 improved, 2 unchanged.",
        findings=(
            Finding(
                rule=Rule.INCONCLUSIVE,
                severity=Severity.NOTE,
                message="compile_cold needs more launches",
                case=HALF,
            ),
        ),
    )


def regressed() -> Comparison:
    """One case is slower and takes more memory, another is unclear."""
    slower = pair(
        verdict=Verdict.REGRESSED,
        base=0.1328,
        head=0.1437,
        reason="8.2 % slower, the threshold is 5 %",
    )
    bigger = memory(Verdict.REGRESSED, base=1.30e9, head=1.45e9)
    unclear = pair(
        verdict=Verdict.INCONCLUSIVE,
        base=0.0214,
        head=0.0219,
        spread=0.06,
        reason="could have seen 6 % or more",
    )
    return comparison(
        case(
            SMALL,
            pairs=(pair(base=842e-6, head=841e-6, arm="aot_eager"), memory(arm="aot_eager")),
            speedups=(speedup(2.31, 2.31, arm="aot_eager"),),
        ),
        case(
            REVIEWS,
            Verdict.REGRESSED,
            pairs=(
                pair(arm="eager", base=0.215, head=0.2152),
                slower,
                bigger,
                graphs(head=3, verdict=Verdict.REGRESSED),
            ),
            speedups=(speedup(1.50, 1.62),),
            checks=(check(), check("numeric_accuracy", Outcome.UNKNOWN, "no reference output")),
            parity=(parity(),),
        ),
        case(
            HALF,
            Verdict.INCONCLUSIVE,
            pairs=(unclear, memory()),
            speedups=(speedup(1.48, 1.49),),
            reason="step time is open",
        ),
        headline="1 of 3 cases regressed: step time 8.2 % slower at worst.",
        findings=(
            fail(
                Rule.REGRESSED,
                "step time of inductor is 8.2 % slower, the threshold is 5 %",
                REVIEWS,
            ),
            fail(
                Rule.REGRESSED,
                "peak allocated memory of inductor is 11.5 % more, the threshold is 0.5 %",
                REVIEWS,
            ),
            fail(Rule.REGRESSED, "graphs of inductor went from 1 to 3", REVIEWS),
            Finding(
                rule=Rule.CHECK_UNKNOWN,
                severity=Severity.WARN,
                message="numeric_accuracy: no reference output",
                case=REVIEWS,
            ),
            Finding(
                rule=Rule.INCONCLUSIVE,
                severity=Severity.NOTE,
                message="step_time could have hidden 6 % or less",
                case=HALF,
            ),
        ),
    )


def no_baseline() -> Comparison:
    """The first run of a repository."""
    new = (
        pair(verdict=Verdict.NEW, base=None, reason="no baseline"),
        memory(Verdict.NEW, base=None),
    )
    alone = {
        "pairs": new,
        "speedups": (speedup(base=None),),
        "base_status": None,
        "reason": "there is no baseline",
    }
    return comparison(
        case(REVIEWS, Verdict.NEW, parity=(parity(),), **alone),
        case(HALF, Verdict.NEW, **alone),
        headline="There is no baseline: nothing could be compared.",
        findings=(fail(Rule.BASELINE_MISSING, "no results document was given for the base side"),),
        mode=BaselineMode.NONE,
        base=None,
        absence="no results document was given for the base side",
    )


def incomparable() -> Comparison:
    """Base ran on another GPU and an older torch."""
    other = GPU | {"gpu": "NVIDIA A100-SXM4-80GB", "torch": "2.11.0"}
    pairs = (
        pair(
            verdict=Verdict.INCOMPARABLE,
            base=0.26,
            head=0.133,
            speedup=None,
            reason="other machine",
        ),
    )
    mismatches = tuple(
        Mismatch(field=field, base=other[field], head=GPU[field]) for field in ("gpu", "torch")
    )
    return comparison(
        case(
            REVIEWS,
            Verdict.INCOMPARABLE,
            pairs=pairs,
            reason="base and head ran on different machines",
            parity=(parity(),),
        ),
        headline="The two runs cannot be compared: gpu and torch differ.",
        findings=(fail(Rule.INCOMPARABLE, "gpu and torch differ between base and head"),),
        base=side("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "main", other),
        mismatches=mismatches,
    )


def parity_broken() -> Comparison:
    """Just as fast, but it learns something else; each word of parity once."""
    broken = parity(
        Parity.DIFFERENT_MATH,
        loss_score=57.3,
        grad_norm_score=212.0,
        first_step=3,
        signal="grad_norm",
        detail="the gradient norm leaves the envelope at step 3",
        seed_rule=SeedRule(passed=True, detail="0.245 against 0.209 + 0.1"),
    )
    spread = Interval(low=-0.001, high=0.004, level=0.90)
    seeds: dict[str, Any] = {
        "tier": Tier.STATISTICAL,
        "masks": Masks.DIFFER,
        "limit": 0.01,
        "loss_score": None,
        "grad_norm_score": None,
    }
    equivalent = parity(
        Parity.EQUIVALENT, difference=0.0012, interval=spread, detail="over 8 seeds", **seeds
    )
    short = parity(
        Parity.INSUFFICIENT_DATA,
        steps=12,
        tier=None,
        masks=None,
        detail="12 steps, 40 are needed",
        limit=None,
    )
    nothing = replace(
        short,
        loss_score=None,
        grad_norm_score=None,
        accuracy=None,
        seed_rule=SeedRule(passed=None, detail="no window"),
    )
    wrong = AccuracyParity(
        reference=0.915,
        candidate=0.86,
        spread=0.004,
        limit=0.026,
        holds=False,
        detail="-5.50 points, limit 2.60",
    )
    other = "not what base computes: outputs of step 1: logits is off by 0.75, and rounding explains 2.4e-06"
    changed = (TensorError(name="outputs of step 1: logits", error=0.75, allowed=2.4e-6),)
    return comparison(
        case(
            "training_loss/reviews[precision=bf16]",
            parity=(equivalent,),
            outputs=outputs(Sameness.CHANGED, detail=other, worst=changed),
        ),
        case(
            "training_loss/reviews[precision=fp16]",
            parity=(nothing,),
            outputs=outputs(
                Sameness.UNKNOWN, detail="the start weights differ from base's", worst=()
            ),
        ),
        case("training_loss/reviews[dropout=0]", parity=(parity(Parity.BITWISE, accuracy=wrong),)),
        case(
            REVIEWS,
            parity=(broken,),
            checks=(check(outcome=Outcome.FAIL, detail="no graph was compiled"),),
        ),
        headline="Loss parity is broken in 1 of 4 cases; no case is slower.",
        findings=(
            fail(
                Rule.PARITY_BROKEN,
                "inductor computes different math from step 3 (gradient norm)",
                REVIEWS,
            ),
            fail(Rule.CHECK_FAILED, "really_compiled: no graph was compiled", REVIEWS),
            fail(
                Rule.ACCURACY_BROKEN,
                "accuracy 91.5 % against 86.0 %, p = 0.0021",
                "training_loss/reviews[dropout=0]",
            ),
            fail(Rule.OUTPUTS_CHANGED, f"eager: {other}", "training_loss/reviews[precision=bf16]"),
            fail(
                Rule.PARITY_UNDECIDED,
                "12 steps are too few",
                "training_loss/reviews[precision=fp16]",
            ),
        ),
    )


def failed_cases() -> Comparison:
    """Every way of not ending well."""
    gone: dict[str, Any] = {"pairs": (), "speedups": (), "checks": ()}
    oom = 'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    loss.backward()\n    ~~~~~~~~~~~~~^^\n'
    oom += "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n```\nreported by @nobody, see #12\n"
    return comparison(
        case(REVIEWS),
        case(SMALL, Verdict.SKIPPED, head_status=Status.SKIPPED, reason="needs cuDNN", **gone),
        case(
            HALF,
            Verdict.FAILED,
            head_status=Status.OUT_OF_MEMORY,
            reason="CUDA out of memory",
            log_tail=oom,
            **gone,
        ),
        case(
            "command/train",
            Verdict.FAILED,
            head_status=Status.CRASHED,
            reason="ended by SIGSEGV",
            log_tail="step 1\nstep 2\n",
            **gone,
        ),
        case(
            "command/export",
            Verdict.REMOVED,
            head_status=None,
            reproduce=None,
            reason="head has no such case",
            **gone,
        ),
        case(
            "command/serve",
            Verdict.NEW,
            base_status=None,
            reason="base has no such case",
            pairs=(pair(verdict=Verdict.NEW, base=None),),
        ),
        headline="2 of 6 cases failed and 1 is gone.",
        findings=(
            fail(Rule.CASE_FAILED, "out of memory while training eager", HALF),
            fail(Rule.CASE_FAILED, "ended by SIGSEGV", "command/train"),
            fail(Rule.CASE_REMOVED, "head has no such case", "command/export"),
            Finding(
                rule=Rule.CASE_SKIPPED, severity=Severity.WARN, message="needs cuDNN", case=SMALL
            ),
            Finding(
                rule=Rule.CASE_NEW,
                severity=Severity.NOTE,
                message="base has no such case",
                case="command/serve",
            ),
        ),
    )


def turned(
    metric: str = "step_time",
    arm: str = "inductor",
    verdict: Verdict = Verdict.UNCHANGED,
    *,
    by: float = 1.001,
    base: float = 0.133,
    calibrated: bool = True,
    q: float | None = 0.62,
    resolvable: float | None = 0.013,
    **fields: Any,
) -> Pair:
    """A time of a paired run: head takes `by` times as long."""
    reason = fields.pop("reason", f"{by - 1:+.1%} in 3 launches, certainly less than 2 %")
    noise = 0.0041 if calibrated else None
    return replace(
        pair(
            metric,
            arm,
            verdict,
            base=base,
            head=base * by,
            spread=0.004,
            reason=reason,
            threshold=0.01,
        ),
        calibrated=calibrated,
        noise=noise,
        resolvable=resolvable,
        q=q,
        **fields,
    )


def paired_run() -> Comparison:
    """Base and head in turns: one case slower, one unclear, one that the calibration hasn't seen; parts and checks to look at."""
    slower = "5.1 % slower (speedup 0.951, 95 % interval 0.947 to 0.955, 2 launches), beyond the threshold of 1 %"
    unclear = (
        "1.2 % slower (speedup 0.988, 95 % interval 0.972 to 1.004, 8 launches); only changes above 2.9 % would show; "
        "2 % (twice the threshold) would take about 17 launches"
    )
    lost = SpeedupChange(
        verdict=Verdict.REGRESSED, ratio=0.951, interval=Interval(low=0.944, high=0.958, level=0.95)
    )
    kept = SpeedupChange(
        verdict=Verdict.UNCHANGED, ratio=1.001, interval=Interval(low=0.993, high=1.009, level=0.95)
    )
    old_rule = Check(
        name="within_7_percent",
        arm="inductor",
        outcome=Outcome.FAIL,
        detail="TorchBench would have said 8 %",
        informative=True,
    )
    return comparison(
        case(
            REVIEWS,
            Verdict.REGRESSED,
            reason=f"inductor step time: {slower}",
            pairs=(
                turned(arm="eager", base=0.215),
                turned(by=1.051, verdict=Verdict.REGRESSED, reason=slower, q=1e-6),
                turned(
                    "forward_time",
                    by=1.09,
                    base=0.05,
                    verdict=Verdict.REGRESSED,
                    reason="a part of the step",
                    detail=True,
                    q=1e-7,
                ),
                memory(),
                graphs(),
            ),
            speedups=(replace(speedup(1.54, 1.62), change=lost),),
            checks=(check(), old_rule),
            parity=(parity(),),
            outputs=outputs(Sameness.WITHIN_ROUNDING),
            facts={"parameters": 11_180_000, "attention": "sdpa", "exported": None},
            arms=("eager", "inductor"),
            reference="eager",
        ),
        case(
            HALF,
            Verdict.INCONCLUSIVE,
            reason=f"inductor step_time: {unclear}",
            pairs=(
                turned(
                    by=1.012,
                    base=0.0214,
                    verdict=Verdict.INCONCLUSIVE,
                    reason=unclear,
                    q=0.09,
                    resolvable=0.029,
                ),
                memory(),
            ),
            speedups=(replace(speedup(1.48, 1.37), change=kept),),
        ),
        case(
            SMALL,
            pairs=(turned(arm="aot_eager", base=842e-6, calibrated=False), memory(arm="aot_eager")),
            speedups=(replace(speedup(2.31, 2.31, arm="aot_eager"), change=None),),
            outputs=outputs(
                Sameness.BITWISE, detail="204 tensors with the same bytes as base's", worst=()
            ),
        ),
        headline="Failed: training_loss/reviews: step time 5.1 % slower (inductor).",
        findings=(
            fail(Rule.REGRESSED, f"inductor step time: {slower}", REVIEWS),
            Finding(
                rule=Rule.INCONCLUSIVE,
                severity=Severity.NOTE,
                message=f"inductor step_time: {unclear}",
                case=HALF,
            ),
        ),
        mode=BaselineMode.PAIRED,
        pairing=Pairing(
            calibration="6 runs of unchanged code against itself, the last of 2026-01-02",
            gating=4,
            launches=8,
            inflation=1.32,
            mean=MeanSpeedup(
                speedup=0.984,
                interval=Interval(low=0.979, high=0.989, level=0.95),
                metrics=4,
                launches=2,
            ),
        ),
    )


def explained() -> Comparison:
    """A slower case whose step was looked at on both sides: a copy, a fusion that broke, memory; and one that could not be."""
    slower = "5.1 % slower (speedup 0.951, 95 % interval 0.947 to 0.955, 2 launches), beyond the threshold of 1 %"
    cause = Cause(
        arm="inductor",
        slower=True,
        larger=True,
        base_s=0.1331,
        head_s=0.1399,
        attributed=0.92,
        parts=(
            part(
                "aten::copy_", 0.0, 0.0055, at="model.py:42", code="y = y.contiguous()", share=0.81
            ),
            part(
                "triton_poi_fused_add_0",
                0.0102,
                0.0114,
                before=("triton_poi_fused_add_mul_0",),
                at="model.py:7",
                share=0.18,
            ),
            part("sleep", 0.0, 0.0002, at="train.py:9", share=0.03, kind=RowKind.PYTHON),
            part("aten::mul", 0.0001, 0.0002, at="model.py:8", share=0.015),
            part("", 0.0007, 0.0, before=("aten::sum",), at="model.py:9", share=-0.1),
        ),
        memory=(
            MemoryPart(
                name="aten::clone", places=("model.py:42",), base_bytes=0.0, head_bytes=16_777_216.0
            ),
        ),
        new_breaks=(GraphBreak(reason="Data-dependent branching", place="model.py:12"),),
        new_recompiles=("forward: tensor 'x' size mismatch at index 0",),
        new_kernels=("triton_poi_fused_add_0",),
        gone_kernels=("triton_poi_fused_add_mul_0",),
    )
    unknown = Cause(
        arm="inductor",
        slower=True,
        unknown="head: profiling took more than 90 s, its share of run.explain_s",
    )
    return comparison(
        case(
            REVIEWS,
            Verdict.REGRESSED,
            reason=f"inductor step time: {slower}",
            pairs=(
                turned(by=1.051, verdict=Verdict.REGRESSED, reason=slower),
                memory(Verdict.REGRESSED, head=1.45e9),
            ),
            arms=("eager", "inductor"),
            reference="eager",
            causes=(cause, Cause(arm="eager", base_s=0.2, head_s=0.2001)),
        ),
        case(
            HALF,
            Verdict.REGRESSED,
            reason=slower,
            pairs=(turned(by=1.051, verdict=Verdict.REGRESSED),),
            causes=(unknown,),
        ),
        headline="Failed: training_loss/reviews: step time 5.1 % slower (inductor).",
        findings=(
            fail(Rule.REGRESSED, f"inductor step time: {slower}", REVIEWS),
            fail(
                Rule.REGRESSED,
                "peak allocated memory of inductor is 11.5 % more, the threshold is 0.5 %",
                REVIEWS,
            ),
            fail(Rule.REGRESSED, f"inductor step time: {slower}", HALF),
        ),
        mode=BaselineMode.PAIRED,
    )


def part(name: str, base_s: float, head_s: float, **fields: Any) -> CausePart:
    """A part of a change, with the same name on both sides where it has time on both."""
    after = (name,) if name else ()
    return CausePart(
        kind=fields.pop("kind", RowKind.OPERATOR),
        before=fields.pop("before", after if base_s else ()),
        after=after,
        places=(fields.pop("at"),),
        codes=(fields.pop("code", ""),),
        base_s=base_s,
        head_s=head_s,
        base_calls=2.0 if base_s else 0.0,
        head_calls=2.0 if head_s else 0.0,
        **fields,
    )


def common_shift() -> Comparison:
    """Against an earlier run: everything is slower together, and a candidate is below its floor."""
    reason = "8 times of training_loss together: 41 % slower (99.2 % interval 0.704 to 0.713)"
    as_all = "41 % slower (speedup 0.709, 95 % interval 0.701 to 0.717); 0.2 % slower beyond what all times of training_loss share"
    pairs = (pair(base=0.133, head=0.1875, reason=as_all), memory())
    below = "inductor: the speedup of step_time is 1.070 (95 % interval 1.050 to 1.090), below the floor of 1.2"
    return comparison(
        case(REVIEWS, pairs=pairs, speedups=(speedup(1.07, 1.08),)),
        case(HALF, pairs=pairs, speedups=(speedup(1.48, 1.47),)),
        headline=f"Failed: {reason}; 1 case below a floor.",
        findings=(fail(Rule.COMMON_SHIFT, reason), fail(Rule.BELOW_FLOOR, below, REVIEWS)),
        shifts=(
            CommonShift(
                suite="training_loss",
                verdict=Verdict.REGRESSED,
                reason=reason,
                metrics=8,
                threshold=0.05,
                speedup=0.709,
                interval=Interval(low=0.704, high=0.713, level=0.992),
            ),
        ),
    )


def mode_case(name: str, speedups: dict[str, float], *, wrong: str = "") -> CaseComparison:
    """A case with compiled arms beside one eager arm."""
    return case(
        f"torchbench/{name}[mode=inference,precision=fp32]",
        pairs=(
            pair(arm="eager"),
            *(
                pair(arm=arm, base=0.133 / value, head=0.133 / value)
                for arm, value in speedups.items()
            ),
        ),
        speedups=tuple(speedup(value, value, arm=arm) for arm, value in speedups.items()),
        checks=tuple(
            replace(
                check(name),
                arm=arm,
                outcome=Outcome.FAIL if (name, arm) == ("accuracy", wrong) else Outcome.PASS,
            )
            for arm in speedups
            for name in ("compiled", "accuracy")
        ),
        arms=("eager", *speedups),
    )


TUNED = "inductor+max-autotune-no-cudagraphs"


def several_modes() -> Comparison:
    """Three compiled arms in each of two cases: one has a fastest beyond doubt, in the other two cannot be told apart."""
    return comparison(
        mode_case("mlp", {"inductor": 1.62, TUNED: 1.84, "aot_eager": 0.97}),
        mode_case("resnet", {"inductor": 1.31, TUNED: 1.33, "aot_eager": 0.95}),
        headline="2 of 2 cases compared: 2 unchanged.",
    )


ENDINGS = {
    "several_modes": several_modes,
    "passed": passed,
    "regressed": regressed,
    "no_baseline": no_baseline,
    "incomparable": incomparable,
    "parity_broken": parity_broken,
    "failed_cases": failed_cases,
    "paired": paired_run,
    "explained": explained,
    "common_shift": common_shift,
}
