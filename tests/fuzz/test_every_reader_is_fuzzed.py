"""Every reader and every renderer has a target: a module that parses bytes, and is neither fed nor explained here, is a failure.

A module is found by what it calls (`PARSERS`). That a target feeds it is not believed but seen: its
lines run while the target is fed its seeds.
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from benchmarks.fuzz_targets import RENDERERS, TARGETS

import ci_bench
from ci_bench.formats.catalogue import AUTO, READABLE
from ci_bench.records.documents import Kind

PACKAGE = Path(ci_bench.__file__).parent
PARSERS = re.compile(
    r"(?:.*\.)?(?:json\.loads?|JSONDecoder|raw_decode|json\.decode|safe_load|yaml\.(?:load|parse|compose)|tomllib\.loads?|parse_json"
    r"|csv\.reader|DictReader|ZipFile|tarfile\.open|decompress|decompressobj|fromstring|literal_eval|pickle\.loads?|marshal\.loads?"
    r"|torch\.load|parsedate_to_datetime|struct\.unpack|ConfigParser)"
)
"""What turns bytes or text into values."""
LAST = re.compile(
    r"load|decode|parse|reader|Reader|ZipFile|open|compose|compress|from|eval|unpack|Parser"
)

FED = {
    "configuration/config.py": "config",
    "commands/baseline_files.py": "why there is no baseline",
    "host/lock.py": "lock of a device",
    "processes/protocol.py": "worker's answers",
    "formats/catalogue.py": "format auto",
    "formats/dynamo_csv.py": "format dynamo-csv",
    "formats/github_action_benchmark.py": "history of github-action-benchmark",
    "formats/oss_benchmark.py": "format oss-benchmark",
    "formats/parsing.py": "format auto",
    "formats/training_events.py": "event files of a training",
    "formats/training_lines.py": "losses of a training",
    "formats/training_tables.py": "losses of a training",
    "formats/unread.py": "format auto",
    "github/archive.py": "artifact",
    "github/context.py": "GitHub's event",
    "github/http.py": "GitHub's answer",
    "records/documents.py": "results",
    "runner/resuming.py": "run to resume",
    "starting/survey.py": "repository",
    "suites/functions/literal.py": "benchmarks",
}
"""Modules that parse, and a target that feeds them."""

OUR_OWN = {
    "worker/profiling/bundles.py": "what a bundle says that the same worker wrote and ran: both are of the measured code, and the "
    "profile that holds it is validated like all that a worker sends",
    "worker/profiling/replay.py": "inputs in the archive that it is run from",
    "processes/forkserver.py": "requests of the process that started it, over a pair of sockets",
    "processes/launch.py": "what the server of its own children says; a worker has no end of that socket",
    "diagnostics/gpu_check/serve.py": "what a probe found, in a fork of its own, of no code but ci-bench's",
    "fleet/journal.py": "what a gate on a fleet wrote into its own output folder, for `--resume`; fleets run trusted code alone",
    "diagnostics/gpu_check/check.py": "the answers of that process, whose figures are judged as data (tests/diagnostics/gpu_check)",
    "suites/shared/worker/batch_parts.py": "how parts of a batch make the whole, which the case's own worker wrote while preparing: both run the same "
    "measured code",
    "suites/shared/planning/planner.py": "a request that ci-bench wrote into its own scratch folder",
}
"""Modules that parse what ci-bench itself wrote for them, to which nobody else can write."""

BY_INVITATION = {
    "worker/comparing.py": "tensors that a worker of the measured code kept, or a baseline's that the command line names; "
    "hostile ones are in tests/worker/outputs",
    "worker/ranks.py": "words of ranks to each other and to their supervisor, a process of the same worker that runs the measured "
    "code: one that dies of them is a worker that crashed (tests/processes/test_ranks.py)",
    "checkouts/bundled.py": "the manifest of a bundle whose SHA-256 and commit the coordinator handed out; hostile ones are in "
    "tests/checkouts/test_bundled.py",
    "checkouts/bytecode.py": "compiled modules, by a process of its own that runs none of them and whose end is an answer as well; hostile "
    "ones are in tests/checkouts/test_seals.py",
    "checkouts/paired.py": "sides that `ci-bench setup` prepared: whoever can write there can change the code that is measured",
    "checkouts/layers.py": "the metadata of packages in the environment of the engine, whose code is run",
    "checkouts/seals.py": "what installers noted of packages before head ran",
    "checkouts/overlap.py": "the answer of a side's own interpreter, about the code that is measured",
    "suites/shared/worker/experiments.py": "what a worker of the same side and case noted beside the package that it compiled, whose code is run",
    "configuration/plugins.py": "the answer of a suite in the measured tree, whose code has just been run",
    "suites/torchbench/runner_tables.py": "a table that the configuration names by its path",
    "suites/torchbench/tables.py": "likewise",
    "suites/transformers/catalog.py": "the model's folder that the configuration names, whose weights are loaded",
}
"""Modules that parse what somebody wrote who can do as he likes anyway: his code is run, or his
file was asked for by name.
"""

RENDERED = {
    "history/alarms.py": "issue",
    "history/page.py": "trend page",
    "report/summary.py": "terminal and badge",
    "report/html/page.py": "html",
    "report/html/report.py": "html",
    "report/markdown.py": "markdown",
    "report/terminal.py": "terminal and badge",
}
"""Modules with a public function that makes a page out of a document, and the target that reads it
again.
"""
NO_PAGE = {
    "report/ci_hosts.py": "XML and JSON for CI hosts, whose texts are cleaned and escaped (tests/report/test_ci_hosts.py)",
    "report/decision.py": "a document for programs, of which the encoder of JSON escapes all (tests/report/test_decision.py)",
}
PAGES = re.compile(r"render\w*|print_\w+|badge|figures|text|told|show\w*")


@cache
def parsing():
    """The modules that parse, from the top of the package."""
    return {
        module(path)
        for path in PACKAGE.rglob("*.py")
        if any(map(PARSERS.fullmatch, called(path.read_text())))
    }


def called(source):
    """What a module calls; only what ends as a parser does is spelled out."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        ast.unparse(function)
        for function in calls
        if LAST.search(getattr(function, "attr", getattr(function, "id", "")))
    ]


def module(path):
    return str(path.relative_to(PACKAGE))


def test_every_module_that_parses_is_fed_or_explained():
    known = [*FED, *OUR_OWN, *BY_INVITATION]
    assert len(known) == len({*known})
    assert parsing() - {*known} == set(), (
        "give it a target in benchmarks/fuzz_targets.py, and a row here"
    )
    assert {*known} - parsing() == set(), "it parses nothing any more"


@pytest.mark.parametrize(
    "source",
    [
        *(
            "json.loads(x)",
            "json.load(f)",
            "yaml.safe_load(x)",
            "msgspec.json.decode(x)",
            "csv.reader(x)",
            "csv.DictReader(f)",
        ),
        *(
            "zipfile.ZipFile(f)",
            "ZipFile(f)",
            "tomllib.loads(x)",
            "zlib.decompress(x)",
            "parse_json(x)",
            "pickle.load(f)",
        ),
    ],
)
def test_a_new_parser_is_noticed(source):
    assert any(map(PARSERS.fullmatch, called(source)))


def test_every_format_and_every_kind_of_document_has_a_target():
    assert {f"format {name}" for name in (AUTO, *READABLE)} <= {*TARGETS}
    assert {*map(str, Kind)} <= {*TARGETS}


def making_pages():
    """Modules of the report and of the history with a public function whose name says that it makes text to be shown."""
    found = set()
    for path in [*(PACKAGE / "report").rglob("*.py"), *(PACKAGE / "history").glob("*.py")]:
        functions = [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
        ]
        if any(map(PAGES.fullmatch, functions)):
            found.add(module(path))
    return found


def test_every_module_that_makes_a_page_is_read_again_or_explained():
    assert making_pages() == {*RENDERED, *NO_PAGE}
    assert {*RENDERED.values()} == RENDERERS


@pytest.mark.parametrize(
    ("name", "target"), [*FED.items(), *RENDERED.items(), ("github/http.py", "GitHub's headers")]
)
def test_a_target_runs_the_module_that_it_is_said_to_feed(name, target):
    ran = run_by(TARGETS[target])
    assert name in ran
    assert "diagnostics/doctor.py" not in ran  # so that not everything counts as run


def run_by(target):
    """The modules of the package whose functions run while a target is fed its seeds, and a text that none of them accepts.

    What is loaded only is not run.
    """
    ran = set()

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)) and frame.f_code.co_name != "<module>":
            ran.add(str(Path(file).relative_to(PACKAGE)))

    seeds = (*target.seeds(), b"neither")
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for seed in seeds:
            target.feed(seed)
    finally:
        sys.setprofile(before)
    return ran
