"""Documents that use every field, for the tests of reading and writing."""

from ci_bench.records.calibration import Calibration, PastRun, PastSeries
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
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import (
    ArmMasks,
    Better,
    Case,
    CaseResult,
    Check,
    Environment,
    Failure,
    Lane,
    Launch,
    Masks,
    Metric,
    NonFinite,
    Outcome,
    ParityEvidence,
    Phase,
    Results,
    Role,
    Run,
    RunState,
    Source,
    Spent,
    Status,
    Trace,
    Unit,
)

CASE_ID = "training_loss/reviews[backend=inductor,precision=fp32]"

RUN = Run(
    id="2030-01-31.1",
    started_at="2030-01-31T12:00:00Z",
    finished_at="2030-01-31T12:05:00Z",
    state=RunState.COMPLETE,
    config_digest="sha256:0123456789abcdef",
    device="cuda:0",
)
ENVIRONMENT = Environment(
    identity={
        "gpu": "NVIDIA H200",
        "gpu_memory_bytes": 150754820096,
        "torch": "2.13.0",
        "deterministic": False,
        "triton": None,
    },
    condition={"sm_clock_mhz": 1980, "temperature_c": 41.5, "other_processes": 0},
)
SOURCE = Source(commit="0123456789abcdef0123456789abcdef01234567", branch="main", dirty=False)
STEP_TIME = Metric(
    name="step_time",
    arm="eager",
    unit=Unit.SECONDS,
    better=Better.LOWER,
    lane=Lane.WALL,
    calls=4,
    launches=(
        Launch(
            launch=0,
            values=(0.0101, 0.0102, 0.01),
            warmup=(0.5, 0.011),
            blocks=(0, 0, 1),
            steady=True,
        ),
        Launch(launch=1, values=(0.0103, 0.0102, 0.01)),
    ),
)
TRACES = (
    Trace(
        arm="eager",
        role=Role.REFERENCE,
        seed=0,
        loss=(0.7, 0.6, 0.5),
        grad_norm=(1.0, 2.0, 1.5),
        start="sha256:00aa",
        data="sha256:00bb",
        accuracy=0.75,
        disagreements=(0, 0),
    ),
    Trace(
        arm="inductor",
        role=Role.CANDIDATE,
        seed=0,
        index=1,
        loss=(0.7, None, 0.5),
        grad_norm=(1.0, None, 1.5),
        start="sha256:00aa",
        data="sha256:00bb",
        non_finite=(
            NonFinite(signal="loss", step=1, value="nan"),
            NonFinite(signal="grad_norm", step=1, value="inf"),
        ),
    ),
)
PARITY = ParityEvidence(
    precision="fp32",
    epsilon=1.2e-07,
    steps_per_epoch=3,
    evaluation_rows=100,
    masks=(ArmMasks(arm="inductor", masks=Masks.ALIGNED, detail="the same masks in 3 probes"),),
    traces=TRACES,
)
MEASURED = CaseResult(
    case=Case(
        id=CASE_ID,
        suite="training_loss",
        name="reviews",
        params={
            "backend": "inductor",
            "lr": 0.0005,
            "evaluation": True,
            "files": {"train": None},
            "sizes": [1, 2],
        },
        arms=("eager", "inductor"),
        reference="eager",
    ),
    status=Status.OK,
    reproduce="ci-bench run --filter 'training_loss/reviews[backend=inductor,precision=fp32]'",
    duration_s=61.5,
    metrics=(STEP_TIME,),
    checks=(
        Check(name="really_compiled", arm="inductor", outcome=Outcome.PASS, detail="2 graphs"),
    ),
    parity=PARITY,
)
CRASHED = CaseResult(
    case=Case(
        id="training_loss/own",
        suite="training_loss",
        name="own",
        params={},
        arms=("eager", "aot_eager"),
        reference="eager",
    ),
    status=Status.CRASHED,
    reproduce="ci-bench run --filter training_loss/own",
    failure=Failure(
        stage="time",
        arms=("aot_eager",),
        reason="the worker died",
        signal="SIGSEGV",
        log_tail="line 1\nline 2",
    ),
)
RESULTS = Results(
    tool_version="1.0.0",
    run=RUN,
    source=SOURCE,
    environment=ENVIRONMENT,
    cases=(MEASURED, CRASHED),
    measured_s=12.5,
    spent=(Spent(stage="launch", phase=Phase.START, seconds=2.5),),
)

SIDE = ComparedSide(run=RUN, source=SOURCE, environment=ENVIRONMENT, tool_version="1.0.0")
INTERVAL = Interval(low=0.9, high=0.95, level=0.95)
FINDING = ParityFinding(
    arm="inductor",
    verdict=Parity.DIFFERENT_MATH,
    tier=Tier.NUMERIC,
    masks=Masks.ALIGNED,
    steps=180,
    detail="the loss leaves the envelope at step 17",
    limit=3.0,
    loss_score=12.5,
    grad_norm_score=4.0,
    first_step=17,
    signal="loss",
    difference=0.02,
    interval=Interval(low=-0.01, high=0.05, level=0.9),
    accuracy=AccuracyParity(
        reference=0.75, candidate=0.74, spread=0.008, limit=0.05, holds=True, detail="7 and 8 rows"
    ),
    seed_rule=SeedRule(passed=True, detail="within 0.1"),
)
COMPARED = CaseComparison(
    id=CASE_ID,
    suite="training_loss",
    verdict=Verdict.REGRESSED,
    reason="step_time",
    base_status=Status.OK,
    head_status=Status.OK,
    reproduce=MEASURED.reproduce,
    log_tail="",
    pairs=(
        Pair(
            metric="step_time",
            arm="inductor",
            unit=Unit.SECONDS,
            better=Better.LOWER,
            verdict=Verdict.REGRESSED,
            reason="slower by 8 %",
            threshold=0.05,
            base=Summary(median=0.01, samples=48, launches=3),
            head=Summary(median=0.0108, samples=48, launches=3),
            speedup=0.925,
            interval=INTERVAL,
            calibrated=True,
            noise=0.004,
            resolvable=0.013,
            q=0.0001,
        ),
    ),
    speedups=(
        ArmSpeedup(
            metric="step_time",
            arm="inductor",
            reference="eager",
            speedup=1.5,
            interval=None,
            base_speedup=1.6,
            change=SpeedupChange(verdict=Verdict.REGRESSED, ratio=0.9375, interval=INTERVAL),
        ),
    ),
    checks=MEASURED.checks,
    parity=(FINDING,),
    base_faults=("really_compiled (inductor) failed: 0 graphs",),
    facts={"parameters": 11_180_000},
    arms=("eager", "inductor"),
    reference="eager",
)
COMPARISON = Comparison(
    tool_version="1.0.0",
    mode=BaselineMode.FILE,
    head=SIDE,
    base=SIDE,
    absence=None,
    mismatches=(Mismatch(field="driver", base="570.1", head=None),),
    cases=(COMPARED,),
    shifts=(
        CommonShift(
            suite="training_loss",
            verdict=Verdict.INCONCLUSIVE,
            reason="6 times of training_loss together: 12 % slower",
            metrics=6,
            threshold=0.05,
            speedup=0.89,
            interval=INTERVAL,
        ),
    ),
    pairing=Pairing(
        calibration="6 runs of unchanged code against itself, the last of 2030-01-30",
        gating=4,
        launches=6,
        inflation=1.25,
        mean=MeanSpeedup(speedup=0.99, interval=INTERVAL, metrics=4, launches=3),
    ),
    judgement=Judgement(
        verdict=RunVerdict.FAILED,
        exit_code=1,
        headline="1 of 1 cases regressed",
        findings=(
            Finding(
                rule=Rule.REGRESSED,
                severity=Severity.FAIL,
                message="step_time is slower by 8 %",
                case=CASE_ID,
            ),
        ),
    ),
)
NO_BASELINE = Comparison(
    tool_version="1.0.0",
    mode=BaselineMode.NONE,
    head=SIDE,
    base=None,
    absence="no baseline was given",
    mismatches=(),
    cases=(),
    judgement=Judgement(
        verdict=RunVerdict.UNDECIDED,
        exit_code=0,
        headline="nothing to compare with",
        findings=(
            Finding(
                rule=Rule.BASELINE_MISSING, severity=Severity.WARN, message="no baseline was given"
            ),
        ),
    ),
)

CALIBRATION = Calibration(
    tool_version="1.0.0",
    fingerprint=f"sha256:{'0123456789abcdef' * 4}",
    identity=ENVIRONMENT.identity,
    runs=(
        PastRun(id="2030-01-29.1", at="2030-01-29T12:00:00Z"),
        PastRun(id="2030-01-30.1", at="2030-01-30T12:00:00Z"),
    ),
    series=(
        PastSeries(
            case=CASE_ID,
            metric="step_time",
            arm="eager",
            ratios=(0.0012, -0.0031, 0.0004),
            within=(0.008, 0.0085, None),
            runs=(0, 0, 1),
        ),
        PastSeries(
            case=CASE_ID,
            metric="compile_warm",
            arm="inductor",
            ratios=(0.05,),
            within=(None,),
            runs=(1,),
        ),
    ),
)
