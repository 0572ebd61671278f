"""What `validate` and `list` say of import paths and backends, without running the tree's code."""

import pytest
import yaml

from ci_bench import cli
from ci_bench.configuration import imports


@pytest.fixture
def validate(tmp_path, monkeypatch, capsys):
    """Writes a configuration beside a small tree, and validates it: the exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("raise SystemExit('this was run')\n")
    (tmp_path / "own" / "models.py").write_text("def small(): ...\n")
    (tmp_path / "own" / "star.py").write_text("from elsewhere import *\n")
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "models.py").write_text("if True:\n    small = None\n")

    def run(entry, command="validate", suite="training_loss", **more):
        config = {"schema_version": 1, "suites": {suite: [entry]}, **more}
        (tmp_path / "ci-bench.yml").write_text(yaml.safe_dump(config, sort_keys=False))
        code = cli.main([command, *(["ci-bench.yml"] if command == "validate" else [])])
        return code, capsys.readouterr().err

    monkeypatch.setattr(
        imports, "find_spec", lambda name: object() if name in {"torch", "installed"} else None
    )
    return run


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nope:model", "the module 'nope' is neither in"),
        ("instaled.models:small", "correct the name"),
        (
            "onw.models:small",
            "the module 'onw' is neither in {folder} or {folder}/src nor installed; did you mean 'own'?",
        ),
        ("own.model:small", "no module own.model in {folder}; did you mean 'models'?"),
        ("own.models:smal", "has no 'smal'; did you mean 'small'?"),
        ("deep.models:large", "has no 'large'"),
    ],
)
def test_an_import_path_that_leads_nowhere_is_refused_with_its_field(
    validate, tmp_path, word, said
) -> None:
    code, err = validate({"model": {"factory": word}})
    assert code == 2
    assert "suites.training_loss[0].model.factory" in err
    assert said.format(folder=tmp_path) in err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nope:model", "the module 'nope' is neither in"),
        ("own.models:smal", "has no 'smal'; did you mean 'small'?"),
        ("own.models", "neither package.module:NAME nor path:FILE,class:NAME"),
        (
            "path:own/modls.py,class:small",
            "no Python file {folder}/own/modls.py; did you mean 'models.py'?",
        ),
        (
            "path:own/models.py,class:large",
            "{folder}/own/models.py has no 'large'; correct the name",
        ),
        ("path:own/models.py", "neither package.module:NAME nor path:FILE,class:NAME"),
    ],
)
def test_an_own_model_that_cannot_be_found_is_refused_with_its_place(
    validate, tmp_path, word, said
) -> None:
    entry = {"source": "own", "models": ["own.models:small", word]}
    code, err = validate(entry, suite="torchbench")
    assert code == 2
    assert "suites.torchbench[0].models[1]" in err
    assert said.format(folder=tmp_path) in err


@pytest.mark.parametrize(
    "word",
    [
        "own.models:small",
        "own.star:anything",
        "installed.models:small",
        "path:own/models.py,class:small",
    ],
)
def test_an_own_model_that_is_there_or_may_be_is_valid(validate, word) -> None:
    assert validate({"source": "own", "models": [word]}, suite="torchbench") == (0, "")


def test_a_file_of_models_that_set_up_may_make_is_valid(validate) -> None:
    entry = {"source": "own", "models": ["path:made/model.py,class:Net"]}
    assert validate(entry, suite="torchbench", setup={"commands": ["make models"]}) == (0, "")
    assert validate(entry, suite="torchbench")[0] == 2


def test_models_of_other_sources_are_no_import_paths(validate) -> None:
    assert validate({"source": "zoo", "models": ["mlp"]}, suite="torchbench") == (0, "")


@pytest.mark.parametrize(
    "word", ["own.models:small", "own.star:anything", "deep.models:small", "installed.models:small"]
)
def test_one_that_leads_somewhere_or_may_is_valid(validate, word) -> None:
    assert validate({"model": {"factory": word}}) == (0, "")


def test_what_set_up_may_make_or_another_machine_may_have_is_valid(validate, monkeypatch) -> None:
    assert (
        validate({"model": {"factory": "nope:model"}}, setup={"commands": ["pip install nope"]})[0]
        == 0
    )
    monkeypatch.setattr(imports, "find_spec", lambda _: None)
    assert validate({"model": {"factory": "nope:model"}})[0] == 0
    assert validate({"model": {"factory": "own.models:smal"}})[0] == 2, (
        "the file is here, and has no such name"
    )


def test_a_plugin_that_is_not_there_is_refused_and_listing_prints_no_traceback(validate) -> None:
    plugin = {"plugins": {"foo": "nope.suite:SUITE"}}
    code, err = validate({"name": "one"}, **plugin)
    assert (code, "plugins.foo: " in err, "'nope'" in err) == (2, True, True)
    code, err = validate({"name": "one"}, command="list", **plugin)
    assert (code, "No module named 'nope'" in err, "Traceback" in err) == (2, True, False)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("max-autotun", "max-autotune"), ("inductr", "inductor"), ("aot_eagr", "aot_eager")],
)
def test_a_misspelt_backend_or_mode_is_refused(validate, word, meant) -> None:
    code, err = validate({"backend": ["inductor", word]})
    assert (
        code,
        "suites.training_loss[0].backend[1]" in err,
        f"did you mean '{meant}'?" in err,
    ) == (2, True, True)


@pytest.mark.parametrize("word", ["inductor", "hidet", "tensorrt_rtx", "inductor2"])
def test_a_backend_that_another_package_may_register_is_valid(validate, word) -> None:
    assert validate({"backend": word}) == (0, "")


def test_a_registered_backend_is_valid_however_near_its_name_is(validate, monkeypatch) -> None:
    assert validate({"backend": "inducto"})[0] == 2
    monkeypatch.setattr(imports, "_registered", lambda: frozenset({"inducto"}))
    assert validate({"backend": "inducto"}) == (0, "")


def test_the_backends_that_torch_has_are_known() -> None:
    torch = pytest.importorskip("torch")
    unknown = [
        name
        for name in torch.compiler.list_backends(exclude_tags=())
        if list(
            imports.backend_faults(
                {"suites": {"training_loss": [{"backend": name}]}}, suites={"training_loss"}
            )
        )
    ]
    assert unknown == []
