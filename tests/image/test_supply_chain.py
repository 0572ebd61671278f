"""What the image holds is told, and what is locked is looked up: the bill of materials, and the workflows that ask for it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("sbom", ROOT / "tools" / "sbom.py")
sbom = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(sbom)

TOLD = "ubuntu\t24.04\ninstalled\tg++\t4:13.2.0-7ubuntu1\tamd64\nconfig-files\tgone\t1\tamd64\ninstalled\ttzdata\t2026a~1+b\tall\n"
BILL = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "metadata": {"tools": {}},
    "components": [{"name": "torch", "version": "2.13.0", "purl": "pkg:pypi/torch@2.13.0"}],
}
DOCKER = """#!/bin/bash
echo "$*" >> "$DOCKER_NOTES"
case "$*" in
    "image inspect"*) echo sha256:5 ;;
    *cyclonedx-py*) cat > "$DOCKER_NOTES.given"; cat "$DOCKER_BILL" ;;
    *dpkg-query*) printf 'debian\\t12\\ninstalled\\ttini\\t0.19\\tamd64\\n' ;;
    *) exit 9 ;;
esac
"""
LOCKS = {*(path.name for path in ROOT.glob("requirements*.lock")), "report/requirements.txt"}
BUILT = ("docker build", "tools/sbom.py", "anchore/scan-action@", "docker push")
SIGNED = ("imagetools create", "cosign sign", "cosign verify", "actions/attest@")


def test_packages_of_the_distribution_come_to_those_of_python():
    bill = sbom.with_system(BILL, TOLD, name="ghcr.io/x/y:1", digest="sha256:5")
    assert [one["purl"] for one in bill["components"]] == [
        "pkg:pypi/torch@2.13.0",
        "pkg:deb/ubuntu/g%2B%2B@4:13.2.0-7ubuntu1?arch=amd64&distro=ubuntu-24.04",
        "pkg:deb/ubuntu/tzdata@2026a~1%2Bb?arch=all&distro=ubuntu-24.04",
    ]
    assert bill["metadata"]["component"] == {
        "type": "container", "bom-ref": "image", "name": "ghcr.io/x/y:1", "version": "sha256:5",
    }  # fmt: skip
    assert (bill["metadata"]["tools"], bill["specVersion"]) == ({}, "1.6")


def test_the_image_is_asked_and_the_tool_comes_by_its_hashes(tmp_path):
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "bill").write_text(json.dumps(BILL))
    notes = tmp_path / "notes"
    environ = {
        **os.environ,
        "DOCKER": str(tmp_path / "docker"),
        "DOCKER_NOTES": str(notes),
        "DOCKER_BILL": str(tmp_path / "bill"),
    }
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "sbom.py", "x:1"],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    assert {one["name"] for one in json.loads(done.stdout)["components"]} == {"torch", "tini"}
    asked = notes.read_text()
    assert asked.count("run --rm --interactive") == 2
    assert "--network=none" in asked, "the second question needs no network"
    assert "--require-hashes" in asked
    assert Path(f"{notes}.given").read_text() == (ROOT / "requirements-audit.lock").read_text()


def test_an_image_that_cannot_be_asked_has_no_bill(tmp_path):
    (tmp_path / "docker").write_text("#!/bin/bash\nexit 125\n")
    (tmp_path / "docker").chmod(0o755)
    environ = {**os.environ, "DOCKER": str(tmp_path / "docker")}
    program = [sys.executable, ROOT / "tools" / "sbom.py", "x:1"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout) == (1, "")


def scripts(text, job):
    return [
        step.get("run", step.get("uses", "")) for step in yaml.safe_load(text)["jobs"][job]["steps"]
    ]


def in_order(steps, parts):
    """Whether each of these parts is in a step, none before the one that precedes it here."""
    script = "\n".join(steps)
    places = [script.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


def complaints_of_a_release(text):
    """What a release leaves out, does too early, or could do without anybody's leave."""
    jobs = yaml.safe_load(text)["jobs"]
    if not in_order(
        scripts(text, "packages"),
        ("tools/release.sh check", "release_packages.py build", "release_packages.py try"),
    ):
        yield "packages are checked, built and tried"
    if not in_order(scripts(text, "image"), BUILT):
        yield "an image is built, billed, scanned and pushed, in this order"
    if {one["architecture"] for one in jobs["image"]["strategy"]["matrix"]["include"]} != {
        "amd64",
        "arm64",
    }:
        yield "an architecture is missing"
    attested = [
        step["with"] for step in jobs["sign"]["steps"] if "actions/attest@" in step.get("uses", "")
    ]
    subjects = sorted(
        (one.get("subject-path") or one["subject-digest"], "sbom-path" in one) for one in attested
    )
    if not in_order(scripts(text, "sign"), SIGNED) or [bill for _, bill in subjects] != [
        False,
        True,
        True,
        False,
    ]:
        yield "the image is signed and verified; provenance of image and packages, and two bills, are attested"
    if (
        jobs["publish"]["needs"] != ["packages", "sign", "pypi"]
        or "sign" not in jobs["pypi"]["needs"]
    ):
        yield "something is published before it is signed"
    if not in_order(scripts(text, "publish"), ("tools/release.sh tag", "gh release create")):
        yield "the tag names the image, and the release is of that tag"
    if (
        any("environment" not in job for job in jobs.values() if "id-token" in job["permissions"])
        or "secrets." in text
    ):
        yield "a job that signs is in no environment, or there is a secret"


def complaints(image, audit):
    """What the check of an image or the weekly look leaves out."""
    if not any("tools/sbom.py" in script for script in scripts(image, "build")):
        yield "a pull request's image has no bill"
    workflow = yaml.safe_load(audit)
    if "cron" not in str(workflow[True].get("schedule")):
        yield "nothing is looked up on a schedule"
    install, look = scripts(audit, "packages")[-2:]
    if not {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= {*install.split()}:
        yield "pip-audit itself comes without hashes"
    if {*re.findall(r"--requirement (\S+)", look)} != LOCKS:
        yield "not every lock is looked up"
    if "--strict" not in look:
        yield "what the database does not know passes"


IMAGE = (ROOT / ".github" / "workflows" / "image.yml").read_text()
AUDIT = (ROOT / ".github" / "workflows" / "audit.yml").read_text()
RELEASE = (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_a_release_has_a_bill_and_every_lock_is_looked_up_each_week():
    assert list(complaints(IMAGE, AUDIT)) == []
    assert list(complaints_of_a_release(RELEASE)) == []


@pytest.mark.parametrize(
    ("which", "sound", "broken", "said"),
    [
        (0, "tools/sbom.py ci-bench:here", "true", "has no bill"),
        (1, "schedule:", "push:", "on a schedule"),
        (1, "--no-deps --require-hashes", "--no-deps", "without hashes"),
        (1, "--requirement report/requirements.txt", "", "not every lock"),
        (1, "--strict ", "", "does not know"),
    ],
)
def test_what_is_left_out_is_told(which, sound, broken, said):
    texts = [IMAGE, AUDIT]
    assert sound in texts[which]
    texts[which] = texts[which].replace(sound, broken)
    assert any(said in one for one in complaints(*texts))


@pytest.mark.parametrize(
    ("sound", "broken", "said"),
    [
        ("tools/release.sh check", "echo", "packages are checked"),
        ("anchore/scan-action@", "actions/cache@", "scanned and pushed"),
        ("arm64, runner", "amd64, runner", "an architecture"),
        ("cosign verify", "echo", "signed and verified"),
        (
            "sbom-path: ${{ runner.temp }}/made/sbom-arm64.cdx.json",
            "subject-version: x",
            "two bills",
        ),
        ("needs: [packages, sign]", "needs: [packages]", "before it is signed"),
        ("needs: [packages, sign, pypi]", "needs: [packages, sign]", "before it is signed"),
        ("tools/release.sh tag", "git tag", "the tag names the image"),
        ("    environment: pypi\n", "", "in no environment"),
        ("${{ github.token }}", "${{ secrets.TOKEN }}", "there is a secret"),
    ],
)
def test_a_release_that_leaves_something_out_is_told(sound, broken, said):
    assert sound in RELEASE
    assert any(
        said in complaint for complaint in complaints_of_a_release(RELEASE.replace(sound, broken))
    )


def test_a_scan_after_the_push_comes_too_late():
    workflow = yaml.safe_load(RELEASE)
    steps = workflow["jobs"]["image"]["steps"]
    (scan,) = [step for step in steps if "scan-action" in step.get("uses", "")]
    steps.remove(scan)
    steps.append(scan)
    workflow["on"] = workflow.pop(True)
    assert any(
        "scanned and pushed" in complaint
        for complaint in complaints_of_a_release(yaml.safe_dump(workflow))
    )
