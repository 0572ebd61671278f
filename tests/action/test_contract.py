"""The actions and workflows as GitHub and its critics read them: official parser, schemas, zizmor, shellcheck; and the pages about them."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from composite import ROOT, TOOLS, need_node

from ci_bench.starting.proposal import workflow_text
from ci_bench.starting.survey import RepositoryPackage, Survey
from faults import FAULTS

BIN = Path(sys.executable).parent
ACTIONS = [
    ROOT / "action.yml",
    ROOT / "report" / "action.yml",
    *(path for path in [ROOT / "docker" / "action.yml"] if path.exists()),
]
WORKFLOWS = sorted([*ROOT.glob("examples/workflows/*.yml"), *ROOT.glob(".github/workflows/*.yml")])
SCRIPTS = sorted(
    [
        *ROOT.glob("tools/*.sh"),
        *ROOT.glob("report/*.sh"),
        *ROOT.glob("entrypoint/*.sh"),
        ROOT / ".ci" / "run",
    ]
)


def complaints(*paths):
    need_node()
    command = ["node", str(TOOLS / "validate.bundle.cjs"), *map(str, paths)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {Path(one["path"]).name: one["complaints"] for one in map(json.loads, told.splitlines())}


def tool(name, *arguments):
    return subprocess.run(
        [str(BIN / name), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def zizmor(*paths):
    config = ROOT / ".github" / "zizmor.yml"
    flags = [
        "--offline",
        "--no-progress",
        "--strict-collection",
        "--persona=auditor",
        "--config",
        config,
    ]
    return tool("zizmor", *flags, *paths)


# Clean


def test_githubs_own_parser_has_no_complaint():
    assert {name: found for name, found in complaints(*ACTIONS, *WORKFLOWS).items() if found} == {}


def test_the_schemas_have_no_complaint():
    for kind, paths in (("actions", ACTIONS), ("workflows", WORKFLOWS)):
        done = tool("check-jsonschema", "--builtin-schema", f"vendor.github-{kind}", *paths)
        assert done.returncode == 0, done.stdout


def test_the_auditor_has_no_complaint():
    done = zizmor(*ACTIONS, *WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_what_init_writes_has_no_complaint(tmp_path):
    example = (ROOT / "examples" / "workflows" / "pull-request.yml").read_text()
    package = RepositoryPackage(name="one", dependencies=True)
    for gpu in (True, False):
        for name, found in (
            ("plain", Survey(gpu=gpu)),
            ("network", Survey(gpu=gpu, package=package)),
        ):
            (tmp_path / f"{name}-{gpu}.yml").write_text(workflow_text(found, example))
    written = sorted(tmp_path.iterdir())
    assert (tmp_path / "plain-True.yml").read_text() == example
    assert {name: found for name, found in complaints(*written).items() if found} == {}
    done = zizmor(*written)
    assert done.returncode == 0, done.stdout
    declared = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    for path in written:
        assert {*yaml.safe_load(path.read_text())["jobs"]["gate"]["steps"][1]["with"]} <= {
            *declared
        }, path.name


def test_shellcheck_has_no_complaint():
    done = tool("shellcheck", *SCRIPTS)
    assert done.returncode == 0, done.stdout


# Each critic is there and awake


@pytest.mark.parametrize(
    ("what", "instead"),
    [
        ("      shell: bash\n", ""),
        ("if: always()", "if: always("),
        ("${{ inputs.token }}", "${{ secrets.TOKEN }}"),
    ],
    ids=["no shell", "half an expression", "a secret"],
)
def test_the_parser_sees_what_is_broken(tmp_path, what, instead):
    text = (ROOT / "action.yml").read_text()
    assert what in text
    path = tmp_path / "action.yml"
    path.write_text(text.replace(what, instead))
    assert complaints(path)["action.yml"] != []


@pytest.mark.parametrize(
    ("what", "instead", "audit"),
    [
        (
            'exec python3 -I "$GITHUB_ACTION_PATH/entrypoint/action" gate',
            "echo ${{ inputs.base }}",
            "template-injection",
        ),
        (
            "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0",
            "actions/upload-artifact@v7",
            "unpinned-uses",
        ),
    ],
)
def test_the_auditor_sees_what_is_planted(tmp_path, what, instead, audit):
    text = (ROOT / "action.yml").read_text()
    assert what in text
    path = tmp_path / "action.yml"
    path.write_text(text.replace(what, instead))
    done = zizmor(path)
    assert done.returncode > 10
    assert audit in done.stdout


def test_the_schema_sees_an_input_without_words(tmp_path):
    path = tmp_path / "action.yml"
    path.write_text(
        re.sub(r"(?m)^    description: .*\n", "", (ROOT / "action.yml").read_text(), count=1)
    )
    assert (
        tool("check-jsonschema", "--builtin-schema", "vendor.github-actions", path).returncode == 1
    )


# Our own rules


def steps(path):
    return yaml.safe_load(path.read_text())["runs"].get("steps", [])


@pytest.mark.parametrize("path", ACTIONS[:2], ids=str)
def test_no_expression_in_a_script_and_no_token_where_code_runs(path):
    for step in steps(path):
        assert "${{" not in step.get("run", "")
        has_token = any("token" in str(value) for value in step.get("env", {}).values())
        assert has_token == (step["id"] in {"baseline", "report", "publish"})
        assert not re.search(r"uses: \./", str(step))


@pytest.mark.parametrize("path", ACTIONS[:2], ids=str)
def test_every_output_is_that_of_a_step(path):
    action = yaml.safe_load(path.read_text())
    ids = {step["id"] for step in steps(path)}
    assert all(
        re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.[\w-]+ \}\}", one["value"])[1] in ids
        for one in action["outputs"].values()
    )


def test_names_are_snake_case():
    """A hyphen in an input's name is lost in a shell's variable."""
    for path in ACTIONS:
        action = yaml.safe_load(path.read_text())
        assert all(
            re.fullmatch(r"[a-z][a-z0-9_]*", name)
            for name in [*action["inputs"], *action["outputs"]]
        )
        assert all(
            one["description"].strip()
            for one in [*action["inputs"].values(), *action["outputs"].values()]
        )


def test_the_image_is_named_by_its_digest_or_built():
    assert re.fullmatch(
        r"build|[a-z0-9./_-]+@sha256:[0-9a-f]{64}",
        yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]["image"]["default"],
    )


def test_workflows_use_inputs_that_are_there():
    of = {
        "ci-bench/ci-bench": "action.yml",
        "./": "action.yml",
        "ci-bench/ci-bench/report": "report/action.yml",
    }
    used = 0
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                name = step.get("uses", "").partition("@")[0]
                if name in of:
                    used += 1
                    declared = yaml.safe_load((ROOT / of[name]).read_text())["inputs"]
                    assert {*step.get("with", {})} <= {*declared}, path.name
    assert used >= 9


ROOM_MIN = 15
"""For the image, the report, the upload and the clean-up."""


def jobs_that_measure():
    for path in sorted(ROOT.glob("examples/workflows/*.yml")):
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            for step in job["steps"]:
                if step.get("uses", "").startswith("ci-bench/ci-bench@"):
                    yield pytest.param(job, step.get("with", {}), id=f"{path.stem} {name}")


@pytest.mark.parametrize(("job", "given"), [*jobs_that_measure()])
def test_what_measures_for_too_long_is_ended_by_the_action_and_reported_before_github_ends_the_job(
    job, given
):
    declared = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    phases = 2 if given.get("baseline", declared["baseline"]["default"]) == "paired" else 1
    minutes = phases * int(given.get("timeout_minutes", declared["timeout_minutes"]["default"]))
    assert minutes + ROOM_MIN <= job["timeout-minutes"]


EXAMPLES = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted(ROOT.glob("examples/workflows/*.yml"))
}


@pytest.mark.parametrize(
    "name", [name for name, workflow in EXAMPLES.items() if "pull_request" in workflow[True]]
)
def test_an_example_gates_what_is_retargeted_and_what_is_queued(name):
    """A change of the branch is `edited`, as one of the title is; a merge queue waits for what a required check says."""
    workflow = EXAMPLES[name]
    assert {"opened", "synchronize", "reopened", "edited"} <= {
        *workflow[True]["pull_request"]["types"]
    }
    assert "merge_group" in workflow[True]
    for job in workflow["jobs"].values():
        if "self-hosted" in job["runs-on"]:
            assert (
                "github.event.action != 'edited' || github.event.changes.base != null" in job["if"]
            )
            assert "merge_group" in job["if"] or "head.repo" not in job["if"], (
                "who is no pull request is no fork"
            )


def test_a_run_that_waits_for_approval_starts_no_report():
    """GitHub says `requested` of it, and `in_progress` of none that waits."""
    reports = [
        workflow[True]["workflow_run"]
        for workflow in EXAMPLES.values()
        if "workflow_run" in workflow[True]
    ]
    assert [{*report["types"]} for report in reports] == [{"in_progress", "completed"}]


def test_what_measures_may_not_write_to_the_repository():
    for name, workflow in EXAMPLES.items():
        for job in workflow["jobs"].values():
            assert (
                "self-hosted" not in job["runs-on"] or job["permissions"]["contents"] == "read"
            ), name


def test_the_least_version_of_the_runner_is_documented():
    """Actions on node24 need 2.327.1: https://github.com/actions/runner/releases/tag/v2.327.1 (actions/checkout's README)."""
    assert re.search(
        r"a runner of version 2\.327\.1 or newer", (ROOT / "docs" / "runner.md").read_text()
    )


def test_the_examples_install_what_is_pinned_and_each_action_in_one_version():
    used = {}
    for path in [*WORKFLOWS, *ACTIONS]:
        text = path.read_text()
        for name, pin in re.findall(r"uses: (actions/[a-z-]+)@(\S+ # \S+)", text):
            used.setdefault(name.replace("download", "upload"), set()).add(pin.partition("# ")[2])
        if "examples" in path.parts:
            assert not re.search(r"pip\S* +install|git\+http", text), path.name
    assert used["actions/upload-artifact"] == {"v7.0.0"}
    assert {name: pins for name, pins in used.items() if len(pins) > 1} == {}


def test_code_that_is_not_trusted_meets_no_writing_token():
    """Jobs on self-hosted runners that a fork can start may only read; the half that writes runs on a hosted runner."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        for job in workflow["jobs"].values():
            assert job["permissions"], "each job says what it needs"
            own_only = "head.repo.full_name == github.repository" in str(job.get("if", ""))
            if (
                "self-hosted" in str(job["runs-on"])
                and "pull_request" in workflow[True]
                and not own_only
            ):
                assert "write" not in job["permissions"].values(), path.name
            if "workflow_run" in workflow[True]:
                assert not any("checkout" in str(step.get("uses")) for step in job["steps"])
                assert "self-hosted" not in str(job["runs-on"])


def test_a_comment_meets_no_job_with_both_code_and_a_right():
    """What has a token that writes checks nothing out; what runs the code may only read, and waits for the answer."""
    for workflow in (
        workflow for workflow in EXAMPLES.values() if "issue_comment" in workflow[True]
    ):
        assert workflow[True] == {"issue_comment": {"types": ["created"]}}
        for job in workflow["jobs"].values():
            checkouts = [step for step in job["steps"] if "checkout" in step["uses"]]
            writes = "write" in job["permissions"].values()
            assert writes != bool(checkouts)
            assert writes or job["permissions"] == {"contents": "read"}
            assert [step["with"]["ref"] for step in checkouts] in (
                [],
                ["${{ needs.answer.outputs.head_sha }}"],
            )
            assert not any({"run", "env"} & {*step} for step in job["steps"])
            assert not {"env", "secrets"} & {*job}


def test_the_steps_run_on_an_old_python():
    """A GPU runner's own: the grammar and the standard library of 3.9."""
    newer = re.compile(
        r"\b(?:tomllib|StrEnum|kw_only|slots=True|zip\([^)]*strict|ExceptionGroup|from datetime import UTC|itertools\.pairwise|batched)"
    )
    shared = ROOT / "src" / "ci_bench" / "host" / "cage.py"
    for package in (shared.parent, shared.parents[1]):
        ast.parse((package / "__init__.py").read_text(), feature_version=(3, 9))
    for path in [*sorted((ROOT / "entrypoint" / "action").glob("*.py")), shared]:
        text = path.read_text().replace("from ci_bench.host import cage\n", "")
        tree = ast.parse(text, feature_version=(3, 9))
        assert not newer.search(text), path.name
        imported = {
            name.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for name in node.names
        }
        imported |= {
            node.module.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
        }
        own = {other.stem for other in path.parent.glob("*.py")}
        assert imported <= {*sys.stdlib_module_names, *own}, path.name
        if "Callable[" in text or " | None" in text:
            assert "from __future__ import annotations" in text, path.name


# What is installed on a hosted runner


def test_the_trusted_half_installs_what_is_pinned_and_no_more():
    lines = (ROOT / "report" / "requirements.txt").read_text()
    locked = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ ]+)", lines))
    pins = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    pins = {name.replace("_", "-"): version for name, version in pins.items()}
    assert {name: version for name, version in locked.items() if pins.get(name) != version} == {}
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=!~\[; ]", one)[0].lower() for one in project["dependencies"]}
    assert wanted <= {*locked}, "run tools/lock_report.sh"
    assert "torch" not in locked
    assert len(re.findall(r"(?m)^[a-z0-9-]+==", lines)) == len(
        re.findall(r"(?m)^[a-z0-9-]+==[^\n]*\\\n    --hash=sha256:", lines)
    )


# A release


def test_a_release_names_its_image_by_digest(tmp_path):
    for name in ("action.yml", "tools/release.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    run = lambda *argv: subprocess.run(  # noqa: E731
        argv, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    run("git", "init", "--quiet")
    run("git", "add", ".")
    assert run("bash", "tools/release.sh", "tag", "1.2.3", "ghcr.io/x/y:latest").returncode == 2
    image = f"ghcr.io/x/y@sha256:{'0' * 64}"
    done = run("bash", "tools/release.sh", "tag", "1.2.3", image)
    assert done.returncode == 0, done.stderr
    released = yaml.safe_load(run("git", "show", "v1.2.3:action.yml").stdout)
    assert released["inputs"]["image"]["default"] == image
    other = image.replace("0" * 64, "1" * 64)
    assert run("bash", "tools/release.sh", "tag", "1.2.4", other).returncode == 3, (
        "there is nothing left to put it in"
    )


@pytest.fixture
def releasable(tmp_path):
    """A commit of main that version 1.2.3 can be made of."""
    for name, text in {
        "src/ci_bench/__init__.py": '__version__ = "1.2.3"\n',
        "CHANGELOG.md": "## [1.2.3] - 2026-01-01\n",
        "tools/release.sh": (ROOT / "tools" / "release.sh").read_text(),
        "schemas/results.json": "{}",
        "schemas/examples/valid/results.json": "{}",
        "tests/fixtures/releases/1.2.3/schemas/results.json": "{}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]
    run = lambda *argv: subprocess.run(  # noqa: E731
        [*git, *argv], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "1.2.3")
    run("update-ref", "refs/remotes/origin/main", "HEAD")
    return tmp_path, run


def release_check(folder, version="1.2.3"):
    command = ["bash", "tools/release.sh", "check", version]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_release_is_made_of_a_commit_of_main_that_says_so(releasable):
    folder, _ = releasable
    done = release_check(folder)
    assert (done.returncode, done.stdout) == (0, "version=1.2.3\n"), done.stderr


@pytest.mark.parametrize(
    ("version", "spoil", "said"),
    [
        ("1.2", lambda *_: None, "is not a version"),
        ("1.2.3; id", lambda *_: None, "is not a version"),
        ("1.2.4", lambda *_: None, "is not what src/ci_bench/__init__.py says"),
        (
            "1.2.3",
            lambda folder, _: (folder / "CHANGELOG.md").write_text("## [1.2.2]\n"),
            "no section [1.2.3]",
        ),
        (
            "1.2.3",
            lambda folder, _: (folder / "schemas/results.json").write_text("{ }"),
            "run tools/release.sh keep",
        ),
        (
            "1.2.3",
            lambda _, run: run("commit", "--quiet", "--allow-empty", "--message", "of a branch"),
            "not on main",
        ),
        ("1.2.3", lambda _, run: run("tag", "v1.2.3"), "released already"),
    ],
    ids=[
        "no version",
        "more than a version",
        "another version",
        "no section",
        "another schema",
        "no commit of main",
        "twice",
    ],
)
def test_what_cannot_be_released_is_refused(releasable, version, spoil, said):
    spoil(*releasable)
    done = release_check(releasable[0], version)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_is_kept_of_a_version_is_its_own_until_it_is_released(releasable):
    folder, run = releasable
    keep = ["bash", "tools/release.sh", "keep"]
    (folder / "schemas/results.json").write_text('{"type": "object"}')
    assert subprocess.run(keep, cwd=folder, check=False).returncode == 0
    assert release_check(folder).returncode == 0
    run("tag", "v1.2.3")
    assert subprocess.run(keep, cwd=folder, capture_output=True, check=False).returncode == 2


# The pages


def test_the_page_of_inputs_is_made_from_the_actions():
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "render_inputs.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "docs" / "inputs.md").read_text() == made.stdout


def quoted():
    """The messages that docs/troubleshooting.md has an entry for."""
    return re.findall(
        r"(?m)^\| `(.+?)` \|",
        (ROOT / "docs" / "troubleshooting.md").read_text().replace("\\`", "'"),
    )


def source():
    paths = [
        *ROOT.glob("entrypoint/**/*.py"),
        *ROOT.glob("entrypoint/*.sh"),
        *ROOT.glob("report/*.sh"),
        *ROOT.glob("src/ci_bench/**/*.py"),
    ]
    text = "".join(path.read_text() for path in paths)
    return re.sub(r'"\s*\n\s*f?"', "", text).replace("`", "'")


def test_each_message_that_the_page_explains_is_one_that_can_be_read():
    text = source()
    lost = [
        message
        for message in quoted()
        if not all(part.strip() in text for part in message.split("…"))
    ]
    assert lost == []
    assert len(quoted()) > len(FAULTS)


def test_each_fault_of_the_runner_is_explained():
    entries = quoted()
    openings = {
        key: text.partition("{")[0].strip().replace("`", "'") for key, text in FAULTS.items()
    }
    assert [
        key
        for key, opening in openings.items()
        if not any(entry.startswith(opening.partition(": ")[0]) for entry in entries)
    ] == []


def test_the_steps_find_what_they_share_with_the_package_though_nothing_is_installed(
    tmp_path,
) -> None:
    """Without site-packages, as on a runner; `cleanup` of a job that never began has nothing to do."""
    words = [sys.executable, "-I", "-S", str(ROOT / "entrypoint" / "action"), "cleanup"]
    done = subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
