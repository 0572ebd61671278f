"""The docs show the example of a plugin with several processes as it is.

`tests/suites/test_shared_trainings.py` runs it.
"""

from pathlib import Path

from ci_bench.configuration.config import load_config

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "ranked_plugin"


def test_the_docs_show_the_example_as_it_is_and_its_configuration_is_valid() -> None:
    page = (ROOT / "docs" / "internals" / "ranked_suites.md").read_text()
    for name in ("suite.py", "worker.py"):
        assert (EXAMPLE / "shared_mlp" / name).read_text() in page, (
            f"docs/internals/ranked_suites.md shows another {name}"
        )
    (entry,) = load_config(EXAMPLE / "ci-bench.yml").entries
    assert entry.options == {"processes": [2, 4]}
