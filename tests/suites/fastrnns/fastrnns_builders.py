"""Small jobs and cases, and what verifying them says."""

from pathlib import Path
from typing import Any

import torch

from ci_bench.records.results import Case, Check
from ci_bench.suites.contract import Context
from ci_bench.suites.fastrnns.options import CompileMode, FastrnnsJob, FastrnnsOptions, parse_entry
from ci_bench.suites.fastrnns.plan import SUITE
from ci_bench.suites.fastrnns.reference import Observed
from ci_bench.suites.fastrnns.run import open_workload
from ci_bench.suites.fastrnns.variants import VARIANTS, Form

SMALL: dict[str, Any] = {
    "seq_length": 4,
    "num_layers": 2,
    "input_size": 5,
    "hidden_size": 6,
    "batch_size": 3,
}
IMAGES: dict[str, Any] = {"cnn_batch_size": 4, "image_size": 64}

RECURRENT = [one for one in VARIANTS.values() if not one.is_convolutional]
WITHOUT_COMPILER = [one.name for one in RECURRENT if one.form not in {Form.COMPILE, Form.LIBRARY}]
"""What runs on a CPU without compiling anything."""
HAND_WRITTEN = [name for name in WITHOUT_COMPILER if VARIANTS[name].form is not Form.ATEN]


def sizes_of(name: str) -> dict[str, Any]:
    return IMAGES if VARIANTS[name].is_convolutional else SMALL


def make_job(name: str, **options: Any) -> FastrnnsJob:
    variant = VARIANTS[name]
    parsed: FastrnnsOptions = parse_entry({**sizes_of(name), **options}).options
    return FastrnnsJob(
        variant=variant,
        mode=CompileMode.DEFAULT if variant.form is Form.COMPILE else None,
        options=parsed,
    )


def make_case(name: str, **options: Any) -> Case:
    (case,) = SUITE.plan({"variants": [name], **sizes_of(name), **options})
    return case


def open_case(case: Case):
    return open_workload(
        case, Context(device="cpu", scratch=Path(), progress=lambda arm, done, total: None)
    )


def verified(name: str, **options: Any) -> dict[str, Check]:
    """The answers of one variant's case by arm."""
    case = make_case(name, **options)
    checks = open_case(case).verify(case.arms).checks
    assert {check.name for check in checks} == {"agrees"}
    return {check.arm: check for check in checks}


def doubled(seen: Observed) -> Observed:
    return {name: value.double() for name, value in seen.items()}


def same_bytes(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.dtype == two.dtype and torch.equal(one, two)
