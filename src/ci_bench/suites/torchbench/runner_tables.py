"""Rules of ours from a YAML table of the dynamo runner's. Pure.

The runner has ``torchbench.yaml``, ``huggingface.yaml`` and ``timm_models.yaml``. These are lost:
`cosine` and `accuracy_check_runs` (neither angles nor majorities pass here), `only_training`
(training is always in training mode here), `divisors` (they are in our own list of batch sizes),
tables of exporters and of TensorRT.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

Rule = dict[str, Any]

HALF = ["fp16", "amp_fp16", "amp_bf16"]
GPUS = ["cuda", "xpu"]
EVEN_HIGHER, HIGHER = 0.08, 0.01
IOU = 0.99
JUDGED = ("pass", "fail_accuracy", "eager_two_runs_differ")
"""Accuracies that a model has to run for."""
COUNTERS = {
    "graph_breaks": "graph_breaks",
    "fallbacks": "fallbacks_to_eager",
    "graphs": "unique_graphs",
    "ops_captured": "calls_captured",
}
"""The runner's columns by their names in our rules."""
MAX_NAMES = 10_000

FIELDS = {
    "batch_size", "dont_change_batch_size", "tolerance", "very_slow", "slow", "non_deterministic",
    "require_larger_multiplier_for_smaller_tensor", "disable_cudagraph", "dtype", "canary_models",
    "only_training", "trt_not_yet_working", "skip", "accuracy", "only_inference", "only_fp32",
}  # fmt: skip
"""Top-level fields of such a file, except anchors."""


def is_of_the_runner(raw: Any) -> bool:
    """Return true if a parsed YAML looks like one of the runner's: its fields, and no version."""
    return isinstance(raw, Mapping) and "rules" not in raw and bool(FIELDS & raw.keys())


def canaries_of(raw: Mapping[str, Any]) -> frozenset[str]:
    """Return the canary models that the runner runs anyway."""
    return frozenset(_names(raw.get("canary_models")))


def rules_of(raw: Mapping[str, Any]) -> list[Rule]:
    """Return the rules of a table, general ones first."""
    return [
        rule
        for part in (_sizes, _tolerances, _kinds, _types, _skips)
        for rule in part(raw)
        if rule["models"]
    ]


def rules_of_expected(text: str) -> list[Rule]:
    """Return the rules of one of the runner's files of expected results.

    Its columns are ``name,accuracy,graph_breaks`` and more counters. A model that is expected not
    to run at all is skipped by that word, since there is nothing to compare. Counters are of the
    graphs that the runner compiles. In inference we compile the same; its training step has more
    breaks than ours, and other graphs.

    Raises:
        ValueError: the text has no such columns.
    """
    lines = [line for line in csv.DictReader(io.StringIO(text)) if line.get("name")]
    if not lines or "accuracy" not in lines[0]:
        raise ValueError(
            "a file of expected results begins with name,accuracy and has a row for each model"
        )
    return [rule for line in lines for rule in _expected(line)]


def _expected(line: Mapping[str, str | None]) -> Iterator[Rule]:
    word = (line["accuracy"] or "").strip()
    models = [str(line["name"]).strip()]
    if word not in {*JUDGED, "pass_due_to_skip"}:
        yield {"models": models, "skip": f"it is expected to end in {word}"}
        return
    if word in JUDGED:
        yield {"models": models, "expected": {"accuracy": word}}
    texts = {ours: line.get(theirs) for ours, theirs in COUNTERS.items()}
    counts = {
        name: int(count) for name, count in texts.items() if count and count.strip().isdigit()
    }
    if counts:
        yield {"models": models, "when": {"mode": "inference"}, "expected": counts}
    if "graph_breaks" in counts:
        yield {
            "models": models,
            "when": {"mode": "training"},
            "expected": {"graph_breaks": counts["graph_breaks"]},
        }


def _sizes(raw: Mapping[str, Any]) -> Iterator[Rule]:
    sizes = _mapping(raw.get("batch_size"))
    for mode in ("training", "inference"):
        for model, size in _mapping(sizes.get(mode)).items():
            yield {"models": [model], "when": {"mode": mode}, "batch_size": size}
    yield {"models": _names(raw.get("dont_change_batch_size")), "fixed_batch": True}
    for model, size in _mapping(_mapping(raw.get("accuracy")).get("max_batch_size")).items():
        yield {"models": [model], "when": {"measure": "accuracy"}, "max_batch_size": size}


def _tolerances(raw: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield rules, all only for `runner_rule`: our own check measures the rounding."""
    table = _mapping(raw.get("tolerance"))

    def rule(name: str, tolerance: float, **when: Any) -> Rule:
        return {"models": _names(table.get(name)), "when": when, "runner_tolerance": tolerance}

    yield rule("even_higher", EVEN_HIGHER, precision=HALF)
    yield rule("higher_fp16", HIGHER, precision=HALF)
    yield rule("higher_bf16", HIGHER, precision="bf16")
    yield rule("higher_bf16_xpu", EVEN_HIGHER, precision="bf16", device="xpu")
    yield rule("even_higher", EVEN_HIGHER, mode="training", precision=["fp32", "tf32"], device=GPUS)
    yield rule("higher_training", 0.02, mode="training")
    yield rule("higher_inference", 0.004, mode="inference")
    yield rule("higher_inference_cpu", 0.005, mode="inference", device="cpu")
    thresholds = _mapping(table.get("iou_thresholds"))
    for model in _names(table.get("use_iou_for_bool_masks")):
        yield {"models": [model], "runner_iou": thresholds.get(model, IOU)}
    yield {
        "models": _names(raw.get("require_larger_multiplier_for_smaller_tensor")),
        "runner_larger_multiplier": True,
    }


def _kinds(raw: Mapping[str, Any]) -> Iterator[Rule]:
    slow = [*_names(raw.get("very_slow")), *_names(raw.get("slow"))]
    yield {"models": slow, "slow": True, "reason": "more than a minute on a desktop CPU"}
    yield {"models": _names(raw.get("non_deterministic")), "non_deterministic": True}
    yield {"models": _names(raw.get("disable_cudagraph")), "cudagraphs": False}


def _types(raw: Mapping[str, Any]) -> Iterator[Rule]:
    kinds = _mapping(raw.get("dtype"))
    for precision in ("fp16", "bf16"):
        forced = {"when": {"precision": precision}, "precision": f"amp_{precision}"}
        yield {"models": _names(kinds.get("force_amp_for_fp16_bf16_models")), **forced}
    yield {
        "models": _names(kinds.get("force_fp16_for_bf16_models")),
        "when": {"precision": "bf16"},
        "precision": "fp16",
    }
    yield {
        "models": _names(kinds.get("amp_dtype_bfloat16")),
        "when": {"precision": "amp_fp16"},
        "precision": "amp_bf16",
    }
    yield {"models": _names(raw.get("only_fp32")), "precision": "fp32"}


def _skips(raw: Mapping[str, Any]) -> Iterator[Rule]:
    skips = _mapping(raw.get("skip"))

    def rule(names: Any, where: str, **when: Any) -> Rule:
        return {"models": _names(names), "when": when, "skip": f"the table skips it ({where})"}

    yield rule(skips.get("all"), "skip.all")
    for device, names in _mapping(skips.get("device")).items():
        yield rule(names, f"skip.device.{device}", device=device)
    for mode, names in _mapping(skips.get("test")).items():
        yield rule(names, f"skip.test.{mode}", mode=mode)
    if isinstance(skips.get("freezing"), list):  # older tables have one list for all devices
        yield rule(skips["freezing"], "skip.freezing", freezing=True)
    for device, names in _mapping(skips.get("freezing")).items():
        yield rule(names, f"skip.freezing.{device}", freezing=True, device=device)
    yield rule(
        skips.get("control_flow"), "skip.control_flow: its graph has to break", nopython=True
    )
    yield rule(skips.get("multiprocess"), "skip.multiprocess: for several processes")
    yield rule(raw.get("only_inference"), "only_inference", mode="training")
    accuracy = _mapping(_mapping(raw.get("accuracy")).get("skip"))
    yield {
        "models": _names(accuracy.get("large_models")),
        "skip_accuracy": "too large for an fp64 copy (accuracy.skip)",
    }
    shaky = {
        "when": {"mode": "training"},
        "skip_accuracy": "eager cannot be made to repeat itself (accuracy.skip)",
    }
    yield {"models": _names(accuracy.get("eager_not_deterministic")), **shaky}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> list[str]:
    """Return a list of names.

    Anchors make lists inside lists, and an empty list can be written as nothing. At most
    `MAX_NAMES` are read: anchors of anchors make any number of lists out of a few lines, and one
    its own part.
    """
    names: list[str] = []
    rest, looked = [value], 0
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            if looked < MAX_NAMES:
                looked += len(item)
                rest += reversed(item)
        elif item is not None:
            names.append(str(item))
    return names[:MAX_NAMES]
