"""Texts for people are plain English: a ratchet on the phrases that `tools/prose.py` counts."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _load():
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


prose = _load()


@pytest.fixture(scope="module")
def counted():
    return prose.counts()


@pytest.mark.parametrize("group", prose.GROUPS)
def test_no_count_rises(group, counted):
    limits = json.loads(prose.LIMITS.read_text())[group]
    risen = {
        name: f"{limits.get(name, 0)} -> {number}"
        for name, number in counted[group].items()
        if number > limits.get(name, 0)
    }
    assert risen == {}, f"see `python tools/prose.py --list {' '.join(risen)}`"


def test_limits_are_the_present_counts(counted):
    assert json.loads(prose.LIMITS.read_text()) == counted, (
        "fewer phrases? then `python tools/prose.py --update`"
    )


@pytest.mark.parametrize(
    "text",
    [
        "The two cannot be told apart.",
        "It goes on with the next case.",
        "Outputs are held against base.",
        "Timings alone are compared.",
        "What is measured is compared.",
        "Done. Where it fails, nothing is kept.",
        "Measured in place of base.",
        "It fails at once, so that nothing is lost.",
    ],
)
def test_translated_phrases_are_counted(text):
    assert prose.hits(text)


@pytest.mark.parametrize(
    "text",
    [
        "What happens if base fails?",
        "The report lists what changed and where it is slower.",
        "Tell GitHub which key to use.",
        "The samples no longer fit.",
        "Leave it alone.",
        "The plan holds both sides.",
    ],
)
def test_plain_phrases_are_not_counted(text):
    assert prose.hits(text) == []


def test_each_kind_of_file_is_read(tmp_path):
    page = "Told.\n\n```\ntold\n```\n\n- `told` and [x](told.md)\n- told\n"
    assert sum(len(prose.hits(text)) for _, text in prose.markdown(page)) == 2
    module = '"""Told."""\nX = f"it is told {1}"  # told\nY = "told"\n'
    assert [len(prose.hits(text)) for _, text in prose.strings(module)] == [1]
    assert sum(len(prose.hits(text)) for _, text in prose.docstrings(module)) == 2
    assert [*prose.descriptions({"a": [{"description": "told `told`", "default": "told"}]})] == [
        (0, "told CODE")
    ]
