"""The baseline that flags and configuration name."""

from pathlib import Path

import pytest

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.baselines import choose_baseline
from ci_bench.configuration.config import load_config


@pytest.mark.parametrize(
    ("base", "baseline", "text", "paired"),
    [
        (None, None, "", False),
        ("main", None, "", True),
        (None, None, "base: main\n", True),
        ("main", "none", "", False),
        ("main", None, "baseline: none\n", False),
    ],
    ids=["nothing", "flag", "file", "other flag", "other file"],
)
def test_a_base_alone_means_paired(tmp_path, base, baseline, text, paired) -> None:
    (file := tmp_path / "ci-bench.yml").write_text(
        f"schema_version: 1\n{text}suites: {{functions: [{{path: b.py}}]}}\n"
    )
    settings = Measuring(environ={}, here=Path(tmp_path), base=base, baseline=baseline)
    assert choose_baseline(settings, load_config(file)).paired == paired
