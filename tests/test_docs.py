"""The docs are true: commands parse, configurations load, generated pages are current.

Links: test_docs_site.py.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ci_bench import __version__, cli
from ci_bench.command_line.flags import make_parser
from ci_bench.configuration.config import load_config

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [
        (page.name, body)
        for page in PAGES
        for found, body in BLOCK.findall(page.read_text())
        if found == language
    ]


def commands():
    """Every `ci-bench …` command line in the pages and the example workflows."""
    made = "commands.md"  # of the grammar itself, whose words name commands without their arguments
    texts = [page.read_text() for page in PAGES if page.name != made] + [
        path.read_text() for path in ROOT.glob("examples/**/*.yml")
    ]
    found = re.findall(
        r"\bci-bench (?:run|gate|compare|show(?= FILE| \S+\.json)|validate|list|doctor|calibrate|convert|fastrnns|github|setup|history|fleet merge(?= leg))\b[^`\n|&]*",
        "\n".join(texts),
    )
    return sorted({line.strip() for line in found})


@pytest.mark.parametrize("line", commands())
def test_command_lines_parse(line):
    arguments = shlex.split(line)[1:]

    assert make_parser().parse_args(arguments).command


def test_there_are_commands_to_check():
    assert len(commands()) >= 5


def test_the_tests_that_show_a_difference_from_the_old_tools_exist():
    page = (ROOT / "docs" / "internals" / "predecessors.md").read_text()
    paths = re.findall(r"`T ([\w/]+\.py)", page)
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / "tests" / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_command_that_is_gone(page, capsys):
    if page.parent.name == "adr" or page.name == "upgrading.md":
        return  # what was decided then, and what replaces it now
    for word in sorted({*re.findall(r"`ci-bench ([a-z][a-z-]+)", page.read_text())}):
        with pytest.raises(SystemExit) as stopped:
            make_parser().parse_args([word, "--help"])
        assert stopped.value.code == 0, (word, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("page", "body"), [(page, body) for page, body in blocks("yaml") if "schema_version" in body]
)
def test_configurations_in_the_pages_load(page, body, tmp_path):
    path = tmp_path / "ci-bench.yml"
    path.write_text(body)

    assert load_config(path).entries


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.yml")), ids=lambda path: path.name)
def test_example_configurations_load_and_plan(path, capsys):
    assert cli.main(["list", "--config", str(path)]) == 0
    assert re.search(r"^[a-z_]+/\S+", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("examples/workflows/*.yml"), *ROOT.glob(".github/workflows/*.yml")]),
    ids=lambda p: p.name,
)
def test_workflows_grant_nothing_and_pin_every_action(path):
    text = path.read_text()
    workflow = yaml.safe_load(text)

    assert workflow["permissions"] == {}
    ours = rf"\./ # .*|ci-bench/ci-bench(/report)?@v{re.escape(__version__)}"
    pinned = r"[\w./-]+@[0-9a-f]{40} # v[\d.]+(?: # zizmor: .*)?"
    assert all(re.fullmatch(rf"{pinned}|{ours}", used) for used in re.findall(r"uses: (.*)", text))


def test_the_configuration_page_is_made_from_the_schema():
    rendered = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "render_configuration.py")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert (ROOT / "docs" / "configuration.md").read_text() == rendered.stdout


def test_the_page_of_commands_is_made_from_the_grammar():
    rendered = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "render_commands.py")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert (ROOT / "docs" / "commands.md").read_text() == rendered.stdout


def test_the_commands_that_everyone_needs_are_in_the_readme():
    readme = (ROOT / "README.md").read_text()

    assert all(
        f"`ci-bench {name}" in readme
        for name in (
            "doctor",
            "list",
            "run",
            "gate",
            "compare",
            "show",
            "validate",
            "doctor --selftest",
        )
    )


def test_exit_codes_in_the_readme_are_the_codes():
    from ci_bench.errors import ExitCode

    rows = re.findall(r"^\| (\d) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert {int(code) for code in rows} == {
        int(code) for code in ExitCode if code < ExitCode.INTERRUPTED
    }


def test_nothing_unfinished_is_promised():
    assert not [page.name for page in PAGES if re.search(r"\b(TODO|FIXME|TBD)\b", page.read_text())]
