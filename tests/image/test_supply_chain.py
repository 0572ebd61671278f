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

TOLD = (
    "ubuntu\t24.04\ninstalled\tg++\t4:13.2.0-7ubuntu1\tamd64\nconfig-files\tgone\t1\tamd64\ninstalled\ttzdata\t2026a~1+b\tall\n"
)
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
RELEASED = ("docker build", "tools/sbom.py", "docker push", "actions/attest@", "tools/release.sh", "gh release create")


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
        [sys.executable, ROOT / "tools" / "sbom.py", "x:1"], capture_output=True, text=True, check=True, env=environ
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


def scripts(path, job):
    return [step.get("run", step.get("uses", "")) for step in yaml.safe_load(path)["jobs"][job]["steps"]]


def complaints(image, audit):
    """What a release or the weekly look leaves out."""
    release = scripts(image, "release")
    places = [next((at for at, script in enumerate(release) if words in script), None) for words in RELEASED]
    if None in places or places != sorted(places):
        yield "a release is built, billed, pushed, attested, tagged and published, in this order"
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


def test_a_release_has_a_bill_and_every_lock_is_looked_up_each_week():
    assert list(complaints(IMAGE, AUDIT)) == []


@pytest.mark.parametrize(
    ("which", "sound", "broken", "said"),
    [
        (0, "docker push", "docker tag", "a release is built"),
        (0, "actions/attest@", "actions/cache@", "a release is built"),
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
