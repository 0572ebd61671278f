"""The Dockerfile and the shell scripts keep to their rules, and each rule sees what is planted."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dockerfile_rules import complaints, copied, instructions

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
SCRIPTS = sorted(
    [
        *(
            path
            for folder in ("entrypoint", "tools")
            for path in (ROOT / folder).glob("**/*.sh")
            if "node_modules" not in path.parts
        ),
        ROOT / ".ci" / "run",
    ]
)
BIN = Path(sys.executable).parent
"""hadolint and shellcheck come as binaries in wheels, beside Python."""


def lint(tool, *arguments, text=None):
    done = subprocess.run(
        [BIN / tool, *arguments], input=text, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_hadolint_has_nothing_to_say():
    assert lint("hadolint", "--failure-threshold", "style", DOCKERFILE) == (0, "")


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (("${BASE_IMAGE} AS system", "debian:latest AS system"), "DL3007"),
        (("# hadolint ignore=DL3008\n", ""), "DL3008"),
        (("--no-install-recommends", ""), "DL3015"),
        (("WORKDIR /build", "RUN cd /build"), "DL3003"),
        (
            (
                'ENTRYPOINT ["/usr/bin/tini", "-s", "-g", "--", "/opt/ci-bench/entrypoint/image.sh"]',
                "ENTRYPOINT tini",
            ),
            "DL3025",
        ),
        (("CMD [", 'CMD ["--version"]\nCMD ['), "DL4003"),
    ],
)
def test_hadolint_sees_what_is_planted(planted, rule):
    text = DOCKERFILE.read_text()
    assert planted[0] in text

    code, out = lint("hadolint", "-", text=text.replace(*planted, 1))

    assert code, out
    assert rule in out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_shellcheck_has_nothing_to_say(script):
    assert lint("shellcheck", "--shell=bash", script) == (0, "")


def test_shellcheck_sees_an_unquoted_variable():
    text = (ROOT / "entrypoint" / "image.sh").read_text()
    code, out = lint("shellcheck", "-", text=text.replace('exec ci-bench "$@"', "exec ci-bench $*"))
    assert code
    assert "SC2048" in out


def test_the_dockerfile_keeps_to_its_rules():
    assert list(complaints(DOCKERFILE.read_text())) == []


PLANTED = {
    "a syntax line": lambda text: f"# syntax=docker/dockerfile:1\n{text}",
    "a heredoc": lambda text: f"{text}\nRUN <<EOF\ntrue\nEOF\n",
    "--link": lambda text: text.replace("COPY src", "COPY --link src"),
    "--mount": lambda text: text.replace(
        "RUN pip wheel", "RUN --mount=type=cache,target=/root pip wheel"
    ),
    "--chmod": lambda text: text.replace("COPY src", "COPY --chmod=755 src"),
    "RUN --network": lambda text: text.replace("RUN pip wheel", "RUN --network=none pip wheel"),
    "no CUDA 13 base image": lambda text: re.sub("@sha256:[0-9a-f]{64}", "", text),
    "no build argument": lambda text: text.replace(
        "FROM ${BASE_IMAGE}", "FROM nvidia/cuda:13.0.2-base-ubuntu24.04"
    ),
    "it names a user": lambda text: text.replace(
        "WORKDIR /workspace", "USER 1000\nWORKDIR /workspace"
    ),
    "ENV HF_TOKEN looks like a secret": lambda text: text.replace(
        "ENV HF_HUB_OFFLINE=1", "ENV HF_TOKEN=x HF_HUB_OFFLINE=1"
    ),
    "ARG INDEX_PASSWORD looks like a secret": lambda text: text.replace(
        "ARG TORCH=", "ARG INDEX_PASSWORD\nARG TORCH="
    ),
    "tini is not installed": lambda text: text.replace("python3-venv tini", "python3-venv"),
    "g++ is not installed": lambda text: text.replace("g++ ", ""),
    "python3-dev is not installed": lambda text: text.replace("python3-dev ", ""),
    "without the lock": lambda text: text.replace(
        "--constraint /opt/ci-bench/lock/locked.txt ", ""
    ),
    "fetched without its hash: pip install --no-compile": lambda text: text.replace(
        "--no-deps --require-hashes --only-binary=:all: --requirement /opt", "--requirement /opt"
    ),
    "fetched without its hash: pip install --no-deps --require-hashes": lambda text: text.replace(
        " --only-binary=:all:", "", 1
    ),
    "fetched without its hash: pip wheel": lambda text: text.replace(
        "pip wheel --no-index", "pip wheel"
    ),
    "fetched without its hash: pip install uv": lambda text: text.replace(
        "RUN pip wheel", "RUN pip install uv && pip wheel"
    ),
    "fetched without its hash: pip install ${TORCH_INDEX": lambda text: re.sub(
        r"if \[ -n .*then \\\n\s*pip install --no-compile (.*\\\n.*;) \\\n\s*fi",
        r"pip install \1 true",
        text,
    ),
    "what pip leaves uncompiled": lambda text: text.replace("python -m compileall", "true"),
    "each container compiles": lambda text: text.replace(
        "pip install --no-deps --no-index", "pip install --no-compile --no-index"
    ),
    "pip compiles nothing": lambda text: text.replace(
        "PIP_NO_CACHE_DIR=1", "PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1"
    ),
    "the entrypoint is not tini": lambda text: text.replace(
        "ENTRYPOINT [", 'ENTRYPOINT ["ci-bench"] # ['
    ),
}


@pytest.mark.parametrize("complaint", PLANTED)
def test_the_rules_see_what_is_planted(complaint):
    text = DOCKERFILE.read_text()
    planted = PLANTED[complaint](text)
    assert planted != text

    assert any(complaint in one for one in complaints(planted)), list(complaints(planted))


def test_the_builder_is_shown_what_is_copied_and_nothing_else():
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    shown = {line[1:] for line in lines if line.startswith("!")}

    assert lines[0] == "*"
    sources = {*copied(DOCKERFILE.read_text())}
    assert shown == {
        one for one in sources if not any(one.startswith(f"{other}/") for other in sources)
    }
    assert all((ROOT / source).exists() for source in shown)


def test_the_rules_read_the_whole_file():
    names = [name for name, _ in instructions(DOCKERFILE.read_text())]
    assert names.count("FROM") == 3
    assert names[-2:] == ["ENTRYPOINT", "CMD"]
