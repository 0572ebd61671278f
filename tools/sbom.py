"""Prints a bill of materials of an image of ci-bench, in CycloneDX's JSON.

It lists Python's packages and the distribution's.

    python3 tools/sbom.py [--network NETWORK] IMAGE > sbom.cdx.json

CycloneDX's own tool looks at Python's packages, in a throw-away container of the image, so that the
image keeps nothing of it; each of its files is taken by its hash (requirements-audit.lock), over
the NETWORK of docker's that the container gets. It knows nothing of Debian and Ubuntu: their
packages are what dpkg says, named by https://github.com/package-url/purl-spec.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

LOCK = Path(__file__).resolve().parents[1] / "requirements-audit.lock"
PYTHON = """
python3 -m venv /tmp/sbom >&2
/tmp/sbom/bin/pip install --quiet --no-deps --require-hashes --only-binary=:all: \
--requirement /dev/stdin >&2
exec /tmp/sbom/bin/cyclonedx-py environment --output-format JSON --output-reproducible \
/opt/ci-bench/bin/python
"""
SYSTEM = r"""
. /etc/os-release
printf '%s\t%s\n' "$ID" "${VERSION_ID:-}"
dpkg-query --show --showformat='${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n'
"""


def with_system(
    bom: dict[str, Any], system_output: str, *, name: str, digest: str
) -> dict[str, Any]:
    """Return the bill of Python's packages with those of the distribution.

    `system_output` is the output of `SYSTEM`; the bill is about the image of this name and digest.
    """
    about = {"type": "container", "bom-ref": "image", "name": name, "version": digest}
    components = [*bom.get("components", ()), *_of_distribution(system_output)]
    return {
        **bom,
        "metadata": {**bom.get("metadata", {}), "component": about},
        "components": components,
    }


def _of_distribution(system_output: str) -> Iterator[dict[str, str]]:
    release, *lines = (line.split("\t") for line in system_output.splitlines())
    distribution, number = release
    for status, name, version, architecture in lines:
        if status == "installed":
            qualifiers = f"arch={architecture}&distro={distribution}-{number}"
            project = f"{distribution}/{quote(name, safe='')}"
            purl = f"pkg:deb/{project}@{quote(version, safe=':')}?{qualifiers}"
            yield {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
            }


def _ask(image: str, script: str, *, network: str, stdin: str = "") -> str:
    """Run a script as root in a container of the image; return its output."""
    docker = [
        os.environ.get("DOCKER", "docker"),
        "run",
        "--rm",
        "--interactive",
        f"--network={network}",
    ]
    command = [*docker, "--user=0", "--workdir=/tmp", "--entrypoint=bash", image, "-euc", script]
    return subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def main() -> None:
    """Ask the image, and print."""
    parser = argparse.ArgumentParser(description="What an image holds, as CycloneDX's JSON.")
    parser.add_argument(
        "--network", default="bridge", help="docker's network by which the tool is fetched"
    )
    parser.add_argument("image")
    arguments = parser.parse_args()
    inspect = [
        os.environ.get("DOCKER", "docker"),
        "image",
        "inspect",
        "--format",
        "{{.Id}}",
        arguments.image,
    ]
    digest = subprocess.run(inspect, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    bom = json.loads(
        _ask(
            arguments.image,
            PYTHON,
            network=arguments.network,
            stdin=LOCK.read_text(encoding="utf-8"),
        )
    )
    system = _ask(arguments.image, SYSTEM, network="none")
    json.dump(with_system(bom, system, name=arguments.image, digest=digest), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
