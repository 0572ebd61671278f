"""What a file that was asked for by name may hold, and no reader falls over: found by fuzzing, refused or read in time."""

import time

import pytest

from ci_bench.checkouts import paired
from ci_bench.errors import BadConfig, NotPrepared
from ci_bench.suites.torchbench.tables import read_tables
from ci_bench.suites.transformers.catalog import TransformersModel, read_stored

NINES = "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[" * 1000,
            "skip: {all: [2001-99-99]}",
            "slow: [0b_]",
            "slow: [!!int x]",
            "slow: [!!float x]",
        ),
        *(
            "slow: [!!timestamp x]",
            "slow: [!!bool x]",
            "slow: [!!set x]",
            "slow: [!!binary \u20ac]",
            "slow: [!!pairs x]",
        ),
    ],
)
def test_a_table_that_yaml_cannot_make_values_of_is_refused(tmp_path, text):
    (tmp_path / "table.yaml").write_text(text)
    with pytest.raises(BadConfig, match=r"table\.yaml"):
        read_tables([str(tmp_path / "table.yaml")])


@pytest.mark.parametrize(
    "text", [f"a0: &a0 [x]\n{NINES}slow: *a11", f"a0: &a0 []\n{NINES}slow: *a11", "slow: &a [*a]"]
)
def test_lists_of_lists_of_lists_are_read_in_time(tmp_path, text):
    (tmp_path / "table.yaml").write_text(text)
    start = time.process_time()
    read_tables([str(tmp_path / "table.yaml")])
    assert time.process_time() - start < 2.0


def test_a_long_list_of_names_keeps_its_first_ones(tmp_path):
    (tmp_path / "table.yaml").write_text(f"slow: [{','.join(f'm{n}' for n in range(12_000))}]")
    (rule,) = read_tables([str(tmp_path / "table.yaml")]).rules
    assert rule["models"] == [f"m{n}" for n in range(10_000)]


def test_a_models_folder_and_prepared_sides_that_are_nested_deep_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(BadConfig, match="cannot be read"):
        read_stored(TransformersModel(name="x", path=str(tmp_path), config={}, stored=True))
    (tmp_path / paired.FILE).write_text('{"x":' * 100_000)
    with pytest.raises(NotPrepared):
        paired.read(tmp_path)
