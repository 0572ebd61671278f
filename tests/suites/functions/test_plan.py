"""From decorators to cases: grids, names, labels, and what is said where they contradict themselves."""

import pytest
from functions_builders import ids, plan, write

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import StageKind
from ci_bench.suites.functions.grids import as_json, label_of
from ci_bench.suites.functions.plan import Functions, must_be_imported
from ci_bench.suites.registry import find_suite, plans_from_tree

ATTENTION = """
    @ci_bench.benchmark(shapes=[(1024, 64), (4096, 128)], dtype=["fp32", "bf16"])
    def attention(shape, dtype):
        return lambda: None

    @attention.provider("torch", reference=True)
    def _(shape, dtype):
        return lambda: None
"""


def test_each_combination_is_a_case_and_the_reference_comes_first(tree) -> None:
    write(tree, ATTENTION)
    cases = plan(tree)
    assert [case.id for case in cases] == [
        "functions/attention[dtype=fp32,shape=1024x64]",
        "functions/attention[dtype=bf16,shape=1024x64]",
        "functions/attention[dtype=fp32,shape=4096x128]",
        "functions/attention[dtype=bf16,shape=4096x128]",
    ]
    assert {(case.arms, case.reference, case.name) for case in cases} == {
        (("torch", "attention"), "torch", "attention")
    }
    assert cases[0].params["parameters"] == {"shape": [1024, 64], "dtype": "fp32"}
    assert cases[0].due.checks == ("agrees", "refereed")
    stages = find_suite("functions").stages(cases[0])
    assert [stage.kind for stage in stages] == [
        StageKind.VERIFY,
        StageKind.ALONE,
        StageKind.ALONE,
        StageKind.TIME,
    ]


def test_a_benchmark_without_parameters_is_one_case_named_by_its_function(tree) -> None:
    write(tree, "@ci_bench.benchmark\ndef start():\n    return lambda: None\n")
    (case,) = plan(tree)
    assert (case.id, case.arms) == ("functions/start", ("start",))


def test_cases_may_be_listed_and_defaults_stay_out_of_the_id(tree) -> None:
    source = """
        @ci_bench.benchmark(cases=[{"n": 1, "causal": True}, {"n": 2}], provider="mine")
        def scan(n, causal=False):
            return lambda: None
    """
    write(tree, source)
    assert ids(tree) == ["functions/scan[causal=true,n=1]", "functions/scan[n=2]"]
    assert {case.arms for case in plan(tree)} == {("mine",)}


def test_a_parameter_wins_over_the_plural_of_another_and_plurals_are_of_three_kinds(tree) -> None:
    write(
        tree,
        "@ci_bench.benchmark(s=[1], batches=[2], frequencies=[3], sizes=[4], heads=5)\n"
        "def f(s, batch, frequency, size, heads):\n    return lambda: None\n",
    )
    assert ids(tree) == ["functions/f[batch=2,frequency=3,heads=5,s=1,size=4]"]


def test_a_name_of_two_files_is_told_apart_by_the_file_and_by_the_folder_where_that_is_not_enough(
    tree,
) -> None:
    body = "@ci_bench.benchmark\ndef f():\n    return lambda: None\n"
    for file in ("b/one.py", "b/two.py", "b/sub/two.py"):
        write(tree, body, file=file)
    assert [case.id for case in plan(tree, path="b")] == [
        "functions/one.f",
        "functions/b.sub.two.f",
        "functions/b.two.f",
    ]
    assert ids(tree, path="b/one.py") == ["functions/f"]


def test_a_name_is_put_in_front_so_that_two_entries_can_have_functions_of_one_name(tree) -> None:
    write(tree, ATTENTION)
    assert ids(tree, name="nightly")[0] == "functions/nightly.attention[dtype=fp32,shape=1024x64]"
    for file in ("a" * 30, "b" * 30):
        write(
            tree,
            f"@ci_bench.benchmark\ndef {'f' * 60}():\n    return lambda: None\n",
            file=f"b/{file}.py",
        )
    with pytest.raises(BadConfig, match="has more than 80 characters"):
        plan(tree, path="b")


def test_files_are_found_in_folders_and_by_globs_and_each_is_read_once(tree) -> None:
    body = "@ci_bench.benchmark\ndef {}():\n    return lambda: None\n"
    for name in ("alpha", "beta"):
        write(tree, body.format(name), file=f"b/bench_{name}.py")
    write(tree, body.format("hidden"), file="b/.venv/bench_x.py")
    write(tree, "x = 1\n", file="b/helpers.py", head="")
    everything = ["functions/alpha", "functions/beta"]
    assert (
        ids(tree, path="b")
        == ids(tree, path="b/bench_*.py")
        == ids(tree, path=["b", "b/bench_alpha.py"])
        == everything
    )
    assert ids(tree, path="b", match=["be*"]) == ["functions/beta"]


def test_its_cases_are_known_only_where_the_tree_is() -> None:
    assert plans_from_tree("functions", {"path": "benchmarks"})


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (None, "none"),
        (True, "true"),
        (1e-5, "1e-05"),
        ((1, 2, 3), "1x2x3"),
        ([(1, 2), (3,)], "1x2:3"),
        ((), "empty"),
        ({"k": 1}, "k:1"),
        ("a b", "a_b_c8687a"),
        (len, "len"),
    ],
)
def test_labels_are_short_and_depend_on_the_value_alone(value, label) -> None:
    assert label_of(value) == label


def test_what_has_no_lasting_name_has_no_label() -> None:
    for value in (object(), lambda: None):
        with pytest.raises(ValueError, match="has no short name"):
            label_of(value)
    assert as_json({"f": len, "shape": (1, 2)}) == {"f": "len", "shape": [1, 2]}


PROVIDED = "@ci_bench.benchmark(n=[1])\ndef f(n):\n    return lambda: None\n"
WRONG = {
    "a misspelt parameter": (
        "@ci_bench.benchmark(shpae=[1])\ndef f(shape): ...",
        "bench.py:3: f: shpae: no parameter of this name (there are: shape); did you mean 'shape'?",
    ),
    "a misspelt option": (
        "@ci_bench.benchmark(treshold=0.1)\ndef f(): ...",
        "bench.py:3: f: treshold: no parameter of this name (there are: none); did you mean 'threshold'?",
    ),
    "a parameter without a value": (
        "@ci_bench.benchmark(n=[1])\ndef f(n, m): ...",
        "bench.py:3: f: grid: m has no value; give a list `m=[…]`, or the parameter a default",
    ),
    "two keywords for one parameter": (
        "@ci_bench.benchmark(n=[1], ns=[2])\ndef f(n): ...",
        "bench.py:3: f: ns: n has values already, by another keyword",
    ),
    "an empty list": (
        "@ci_bench.benchmark(n=[])\ndef f(n): ...",
        "bench.py:3: f: n: an empty list makes no case",
    ),
    "values of one label": (
        '@ci_bench.benchmark(n=[1, "1"])\ndef f(n): ...',
        "bench.py:3: f: n=1: {'n': 1} and {'n': '1'} would be one case; make them differ",
    ),
    "too many": (
        f"@ci_bench.benchmark(a={[*range(11)]}, b={[*range(10)]}, c={[*range(10)]})\ndef f(a, b, c): ...",
        "bench.py:3: f: cases: the grid has 1,100, but at most 1,000 are allowed",
    ),
    "a grid beside a list": (
        "@ci_bench.benchmark(n=[1], cases=[{'n': 1}])\ndef f(n): ...",
        "bench.py:3: f: n: the cases are listed under `cases`, too; write one or the other",
    ),
    "a list of no mappings": (
        "@ci_bench.benchmark(cases=[1])\ndef f(n): ...",
        "bench.py:3: f: cases: a list of mappings",
    ),
    "a stranger in a list": (
        "@ci_bench.benchmark(cases=[{'m': 1}])\ndef f(n): ...",
        "bench.py:3: f: cases[0].m: no parameter of this name (there are: n)",
    ),
    "a threshold that is none": (
        "@ci_bench.benchmark(threshold=3)\ndef f(): ...",
        "bench.py:3: f: threshold: 3 is not a fraction between 0 and 1, such as 0.02",
    ),
    "a name that ids cannot have": (
        "@ci_bench.benchmark(größe=[1])\ndef f(größe): ...",
        "bench.py:3: f: name: 'größe' is not of up to 60 letters, digits and _, as ids are",
    ),
    "a number of too many digits": (
        f"@ci_bench.benchmark(n=[0x{'f' * 5000}])\ndef f(n): ...",
        "bench.py:3: f: n: Exceeds the limit",
    ),
    "a threshold of too many digits": (
        f"@ci_bench.benchmark(threshold=0x{'f' * 5000})\ndef f(): ...",
        "bench.py:3: f: threshold: a very long number is not a fraction",
    ),
    "a value that no document holds": (
        f"@ci_bench.benchmark(n=[{(*range(101),)}])\ndef f(n): ...",
        "bench.py:3: f: n: a value of more than 1000 characters or 100 items",
    ),
    "an id that is too long": (
        "@ci_bench.benchmark({})\ndef f({}): ...".format(
            ", ".join(f"p{k}=['{'x' * 60}']" for k in range(9)),
            ", ".join(f"p{k}" for k in range(9)),
        ),
        "bench.py:3: f: cases: the parameters make an id of more than 400 characters",
    ),
    "a word for backward": (
        "@ci_bench.benchmark(backward='yes')\ndef f(): ...",
        "bench.py:3: f: backward: True or False",
    ),
    "a provider of other parameters": (
        PROVIDED + "\n@f.provider('other')\ndef _(m): ...",
        "bench.py:7: f: provider: other takes m instead of n",
    ),
    "two providers of one name": (
        PROVIDED + "\n@f.provider('f')\ndef _(n): ...",
        "bench.py:7: f: provider: two are called 'f'; rename one",
    ),
    "a provider's name": (
        PROVIDED + "\n@f.provider('my kernel')\ndef _(n): ...",
        "bench.py:7: f: provider: 'my kernel' may have letters, digits and _ . : + - only",
    ),
    "two references": (
        PROVIDED
        + "".join(f"\n@f.provider('{name}', reference=True)\ndef _(n): ...\n" for name in "ab"),
        "bench.py:3: f: provider: two are marked as the reference; mark one",
    ),
    "no Python": ("def f(:", "bench.py:3: "),
    "no benchmark": (
        "x = 1",
        "suites.functions: bench.py: it has no benchmark; recognised are functions under @ci_bench.benchmark",
    ),
}


@pytest.mark.parametrize(("source", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_file_line_field_and_what_to_do(tree, source, said) -> None:
    write(tree, source)
    with pytest.raises(BadConfig) as error:
        plan(tree)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "suites.functions: nowhere: no Python file found in "),
        ("../x", "suites.functions: ../x: not inside of the tree"),
        ("/etc", "suites.functions: /etc: not inside of the tree"),
    ],
)
def test_a_path_that_leads_nowhere_or_out_is_refused(tree, path, said) -> None:
    with pytest.raises(BadConfig) as error:
        plan(tree, path=path)
    assert str(error.value).startswith(said)


def test_a_match_that_fits_nothing_names_what_there_is(tree) -> None:
    write(tree, ATTENTION)
    with pytest.raises(BadConfig, match=r"none of its benchmarks fits match \(attention\)"):
        plan(tree, match=["soft*"])


def test_where_nobody_may_import_what_has_to_be_imported_is_refused(tree) -> None:
    write(tree, "@ci_bench.benchmark(n=[2**10])\ndef f(n):\n    return lambda: None\n")
    assert must_be_imported(tree, {"path": "bench.py"})
    with pytest.raises(BadConfig, match=r"bench\.py: has to be imported to be planned"):
        Functions(folder=tree).plan({"path": "bench.py"})
