"""Tab completion: what bash, zsh and fish offer after a script is sourced, and that every command and flag is in it."""

import shutil
import subprocess

import pytest

from ci_bench import cli
from ci_bench.command_line.flags import GRAMMAR, make_parser
from ci_bench.command_line.parsers import command_words

COMPLETE = """
source {script}
COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_ci_bench
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(tmp_path, capsys):
    """Writes the script of a shell."""

    def written(shell):
        assert cli.main(["--completion", shell]) == 0
        path = tmp_path / f"ci-bench.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return written


def offered(script, *words):
    """What bash offers for a line whose last word is being typed."""
    line = " ".join(f"'{word}'" for word in ("ci-bench", *words))
    command = ["bash", "--norc", "-euc", COMPLETE.format(script=script, line=line)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ga"], ["gate"]),
        (["-v", "sh"], ["show"]),
        (["gate", "--basel"], ["--baseline"]),
        (["gate", "--launches", "3", "--sav"], ["--save-outputs", "--save-baseline"]),
        (["show", "--format", "ju"], ["junit"]),
        (
            ["show", "--format", ""],
            [
                "terminal",
                "comment",
                "markdown",
                "html",
                "json",
                "junit",
                "code-quality",
                "badge",
                "time",
            ],
        ),
        (["--completion", ""], ["bash", "zsh", "fish"]),
        (["history", "ad"], ["add"]),
        (["history", "add", "--rem"], ["--remote"]),
        (["fleet", "status", "gate", "--d"], ["--device"]),
        (["gate", "--config", "ci"], []),
        (["gate", "benchm"], []),
        (["run", "gate", "--compare"], []),
        (["github", "publish", "--le"], []),
        (["github", "fetch-b"], ["fetch-baseline"]),
    ],
)
def test_bash_completes(script, words, found):
    """Nothing found is a file's name, which bash completes by default."""
    assert offered(script("bash"), *words) == found


def test_zsh_has_the_same_script(script):
    assert script("zsh").read_text() == script("bash").read_text()


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_every_command_and_flag_is_in_the_script(script, shell):
    text = script(shell).read_text()
    commands = list(command_words("", make_parser()))
    assert {one.name.partition(" ")[0] for one in commands if one.name} == {*GRAMMAR}
    for name in (name for one in commands for flag in one.flags for name in flag.names):
        spelled = (
            name
            if shell == "bash"
            else f"-l {name[2:]} "
            if name.startswith("--")
            else f"-s {name[1:]} "
        )
        assert spelled in text, name
    assert "--legs" not in text, "hidden"


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ga", ["gate"]),
        ("gate --basel", ["--baseline"]),
        ("show --format ju", ["junit"]),
        ("history ad", ["add"]),
        ("history add --rem", ["--remote"]),
    ],
)
def test_fish_completes(script, line, found):
    command = [
        "fish",
        "--no-config",
        "-c",
        f"source {script('fish')}; complete -C 'ci-bench {line}'",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [offer.partition("\t")[0] for offer in done.stdout.splitlines()] == found


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_offers_no_flag_of_another_command(script):
    command = [
        "fish",
        "--no-config",
        "-c",
        f"source {script('fish')}; complete -C 'ci-bench validate --'",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [offer.partition("\t")[0] for offer in done.stdout.splitlines()] == ["--help"]
