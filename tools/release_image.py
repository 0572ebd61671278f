"""Publishes an image to a registry on the loopback as a release does, and uses it.

    python3 tools/release_image.py [IMAGE]

Pushes IMAGE (or builds it, `tools/docker.sh`), signs it, states where it comes from and what it
holds, pulls it by its digest, verifies, has the action gate a pull request with it, and has a node
of a fleet that has not got it pull it and measure a lease. Then it tampers: a changed image under
the same tag, with and without the signature of the right one, under another key, and a manifest
that was altered in the registry; each has to be refused.

A release signs with cosign, without a key: the certificate is GitHub's word for the workflow, and
the log of it is public. Both need the network, so here skopeo signs and verifies with a key
made on the spot, and statements of in-toto (https://github.com/in-toto/attestation) are signed as
DSSE envelopes by securesystemslib. Where the machine has no engine or no registry, the script says
so, says what was not checked, and its exit code is 0.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, Key

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tools" / "docker.sh"
CANNOT = 77
TAG = "localhost/ci-bench:release"
PROJECT = "ci-bench/ci-bench"
GATED = "tests/action/test_real_image.py::test_from_the_event_to_the_comment_and_the_failed_gate"
LEASED = (
    "tests/image/test_caged_lease.py"
    "::test_the_real_image_measures_a_lease_of_which_nothing_gets_out"
)
STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
BILL = "https://cyclonedx.org/bom"
PAYLOAD = "application/vnd.in-toto+json"
UNCHECKED = (
    "image, its signature, what is stated about it, the action and a lease with the published image"
)


class Cannot(Exception):  # noqa: N818 - read as a sentence
    """Requirement that this machine lacks."""


class Refused(Exception):  # noqa: N818 - read as a sentence
    """Why an image, a signature or a statement was not accepted."""


# Statements


def state(
    signer: CryptoSigner, digest: str, predicate_type: str, predicate: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a signed statement about the image of a digest (``sha256:…``), as a DSSE envelope."""
    subject = [{"name": PROJECT, "digest": {"sha256": digest.removeprefix("sha256:")}}]
    content = {
        "_type": STATEMENT,
        "subject": subject,
        "predicateType": predicate_type,
        "predicate": predicate,
    }
    envelope = Envelope(json.dumps(content).encode(), PAYLOAD, {})
    envelope.sign(signer)
    signed: dict[str, Any] = envelope.to_dict()
    return signed


def verified(
    envelope: Mapping[str, Any], key: Key, digest: str, predicate_type: str
) -> Mapping[str, Any]:
    """Return the predicate of a statement.

    Raises `Refused` unless the key signed it, of this type and about this digest.
    """
    opened = Envelope.from_dict(copy.deepcopy(dict(envelope)))  # which takes what it is given apart
    try:
        opened.verify([key], 1)
    except VerificationError as error:
        raise Refused(str(error)) from error
    content = json.loads(opened.payload)
    if (
        opened.payload_type != PAYLOAD
        or content["_type"] != STATEMENT
        or content["predicateType"] != predicate_type
    ):
        raise Refused(f"it states something else: {content['predicateType']}")
    if {"sha256": digest.removeprefix("sha256:")} not in [
        subject["digest"] for subject in content["subject"]
    ]:
        raise Refused("it is about another image")
    predicate: Mapping[str, Any] = content["predicate"]
    return predicate


def provenance(commit: str) -> dict[str, Any]:
    """Return the image's provenance as SLSA has it (https://slsa.dev/spec/v1.0/provenance)."""
    source = {"uri": "git+https://github.com/ci-bench/ci-bench", "digest": {"gitCommit": commit}}
    definition = {
        "buildType": "https://ci-bench.dev/release-check/1",
        "externalParameters": {"source": source["uri"]},
    }
    details = {"builder": {"id": "https://ci-bench.dev/release-check"}}
    return {
        "buildDefinition": {**definition, "resolvedDependencies": [source]},
        "runDetails": details,
    }


# Engine and registry


def script(*arguments: object, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the names and values that `tools/docker.sh` prints.

    Raises `Cannot` where it says that this machine can't.
    """
    done = subprocess.run(
        [str(SCRIPT), *map(str, arguments)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode == CANNOT:
        raise Cannot(f"tools/docker.sh {arguments[0]} has said why")
    done.check_returncode()
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


@contextmanager
def services(folder: Path) -> Iterator[dict[str, str]]:
    """Start an engine and a registry; yield the environment that names them.

    It has ``REGISTRY``, ``DOCKER``, and perhaps ``DOCKER_HOST``.
    """
    try:
        variables = script("up", folder)
        variables |= script("registry", folder)
        yield {**os.environ, **variables}
    finally:
        script("down", folder)


@contextmanager
def wheels(folder: Path) -> Iterator[None]:
    """Serve this machine's wheels, at the address that an image built here remembers.

    `tools/pip_settings.py` serves them.
    """
    settings = [
        sys.executable,
        str(ROOT / "tools" / "pip_settings.py"),
        str(folder / "pip.conf"),
        str(folder / "served"),
    ]
    server = subprocess.Popen(settings)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


class Registry:
    """Images of one project in a registry: docker moves them, skopeo signs and verifies them."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Keep keys, signatures and policies in a folder."""
        self.folder, self.environ = folder, {**environ, "GNUPGHOME": str(folder / "gnupg")}
        self.name = f"{environ['REGISTRY']}/{PROJECT}"
        (folder / "gnupg").mkdir(mode=0o700)
        (folder / "registries.d").mkdir()
        signatures = folder / "signatures"
        places = {
            "default-docker": {
                "sigstore": f"file://{signatures}",
                "sigstore-staging": f"file://{signatures}",
            }
        }
        (folder / "registries.d" / "default.yaml").write_text(json.dumps(places), encoding="utf-8")

    def run(self, *command: str) -> str:
        """Return the output of a program.

        Raises `Refused` with its complaint.
        """
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Refused(done.stderr.strip()[-400:])
        return done.stdout

    def docker(self, *arguments: str) -> str:
        """Return the output of docker."""
        return self.run(self.environ["DOCKER"], *arguments)

    def push(self, image: str, tag: str) -> str:
        """Push an image, and return the digest that it has in the registry."""
        self.docker("tag", image, f"{self.name}:{tag}")
        self.docker("push", "--quiet", f"{self.name}:{tag}")
        digests = json.loads(
            self.docker(
                "image", "inspect", "--format", "{{json .RepoDigests}}", f"{self.name}:{tag}"
            )
        )
        (reference,) = [digest for digest in digests if digest.startswith(f"{self.name}@")]
        return str(reference.partition("@")[2])

    def make_key(self, owner: str) -> Path:
        """Make a key of GnuPG's for an owner; return the file of its public half."""
        self.run(
            "gpg",
            "--batch",
            "--quiet",
            "--passphrase",
            "",
            "--quick-generate-key",
            owner,
            "ed25519",
            "sign",
            "never",
        )
        public = self.folder / f"{owner}.pub"
        self.run("gpg", "--batch", "--quiet", "--output", str(public), "--export", owner)
        return public

    def sign(self, digest: str, owner: str) -> None:
        """Put a signature by an owner's key next to the image of a digest."""
        keys = self.run("gpg", "--batch", "--with-colons", "--fingerprint", owner)
        fingerprint = next(
            line.split(":")[9] for line in keys.splitlines() if line.startswith("fpr:")
        )
        self.copy(
            f"{self.name}@{digest}", f"{self.name}:signed-by-{owner}", "--sign-by", fingerprint
        )

    def verify(self, reference: str, public: Path) -> None:
        """Raise `Refused` unless this key has signed an image, by ``@digest`` or ``:tag``."""
        accepted = {
            "type": "signedBy",
            "keyType": "GPGKeys",
            "keyPath": str(public),
            "signedIdentity": {"type": "matchRepository"},
        }
        policy = {
            "default": [{"type": "reject"}],
            "transports": {"docker": {self.name: [accepted]}},
        }
        path = self.folder / "policy.json"
        path.write_text(json.dumps(policy), encoding="utf-8")
        target = f"{self.environ['REGISTRY']}/verified/{PROJECT}:latest"
        self.copy(
            f"{self.name}{reference}", target, "--remove-signatures", policy=("--policy", str(path))
        )

    def copy(
        self,
        source: str,
        target: str,
        *options: str,
        policy: Sequence[str] = ("--insecure-policy",),
    ) -> None:
        """Copy an image from one place of a registry to another."""
        settings = ("--registries.d", str(self.folder / "registries.d"))
        flags = ("--quiet", "--src-tls-verify=false", "--dest-tls-verify=false")
        self.run(
            "skopeo",
            *settings,
            *policy,
            "copy",
            *flags,
            *options,
            f"docker://{source}",
            f"docker://{target}",
        )

    def signature_folder(self, digest: str) -> Path:
        """Return the folder of a digest's signatures.

        https://github.com/containers/image/blob/main/docs/containers-registries.d.5.md
        """
        return self.folder / "signatures" / f"{PROJECT}@{digest.replace(':', '=')}"


# The check


def check(image: str, folder: Path, environ: Mapping[str, str], storage: Path) -> None:
    """Publish, verify, use, tamper.

    Raises `Refused` where what is right was refused, or what is wrong was not.
    """
    registry = Registry(folder, environ)
    public, signer = registry.make_key("release"), CryptoSigner.generate_ecdsa()
    digest = registry.push(image, "release")
    registry.sign(digest, "release")
    bill = json.loads(
        registry.run(sys.executable, str(ROOT / "tools" / "sbom.py"), "--network=host", image)
    )
    commit = registry.run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    envelopes = {
        PROVENANCE: state(signer, digest, PROVENANCE, provenance(commit)),
        BILL: state(signer, digest, BILL, bill),
    }
    say(
        f"pushed as {registry.name}@{digest}, signed, with provenance and a bill of"
        f" {len(bill['components'])} packages"
    )

    registry.docker("image", "rm", "--force", f"{registry.name}:release", image)
    registry.docker("pull", "--quiet", f"{registry.name}@{digest}")
    registry.verify(f"@{digest}", public)
    for kind, envelope in envelopes.items():
        verified(envelope, signer.public_key, digest, kind)
    say("pulled by its digest; signature and statements verify")
    passes(GATED, f"{registry.name}@{digest}", environ)
    say("the action gates a pull request with it, from the event to the comment")
    registry.docker("image", "rm", "--force", f"{registry.name}@{digest}")
    passes(LEASED, f"{registry.name}@{digest}", environ)
    say("a node that has not got it pulls it, and measures a lease in it")
    tamper(registry, digest, public)
    alter(registry, digest, storage)


def passes(test: str, reference: str, environ: Mapping[str, str]) -> None:
    """Run a test with this image. Raises `Refused` where it fails, or was left out."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environ, "CI_BENCH_TEST_IMAGE": reference},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or "1 passed" not in done.stdout:
        raise Refused(f"{test} with {reference}: {done.stdout[-2000:]}")


def tamper(registry: Registry, digest: str, public: Path) -> None:
    """Put a changed image under the tag of the right one; raise `Refused` where it is accepted."""
    container = registry.docker("create", f"{registry.name}@{digest}").strip()
    registry.docker(
        "commit", "--change", 'ENTRYPOINT ["/bin/true"]', container, "localhost/ci-bench:tampered"
    )
    registry.docker("rm", container)
    other = registry.push("localhost/ci-bench:tampered", "release")
    must_refuse("a changed image under the same tag", lambda: registry.verify(":release", public))
    shutil.copytree(registry.signature_folder(digest), registry.signature_folder(other))
    must_refuse(
        "a changed image with the right one's signature",
        lambda: registry.verify(f"@{other}", public),
    )
    shutil.rmtree(registry.signature_folder(other))
    registry.make_key("stranger")
    registry.sign(other, "stranger")
    must_refuse(
        "a changed image that a stranger signed", lambda: registry.verify(f"@{other}", public)
    )
    registry.verify(f"@{digest}", public)


def alter(registry: Registry, digest: str, storage: Path) -> None:
    """Change the manifest in the registry; raise `Refused` if it passes for the digest's.

    Signatures are not checked.

    By skopeo, which keeps nothing: docker may have the right one of an earlier pull, and ask the
    registry for none.
    """
    (blob,) = storage.glob(
        f"docker/registry/v2/blobs/sha256/*/{digest.removeprefix('sha256:')}/data"
    )
    blob.write_bytes(blob.read_bytes().replace(b'"size":', b'"size": ', 1))
    must_refuse(
        "a manifest altered in the registry",
        lambda: registry.copy(f"{registry.name}@{digest}", f"{registry.name}:altered"),
    )


def must_refuse(what: str, attempt: Any) -> None:
    """Raise `Refused` unless the attempt does."""
    try:
        attempt()
    except Refused as refused:
        complaint = str(refused)
        say(f"{what} is refused: {(complaint.partition('msg=')[2] or complaint)[:130]}")
        return
    raise Refused(f"{what} was accepted")


def say(line: str) -> None:
    """Print one line of progress."""
    sys.stdout.write(f"release: {line}\n")
    sys.stdout.flush()


def main(image: str | None) -> None:
    """Do it all on this machine's engine, or one of our own."""
    folder = Path(tempfile.mkdtemp(prefix="ci-bench-release-"))
    with tempfile.TemporaryDirectory() as keys, services(folder) as environ:
        if image is None:
            script("build", folder, TAG, environ=environ)
        with wheels(folder) if image is None else nullcontext():
            check(image or TAG, Path(keys), environ, folder / "registry")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
    except Cannot as cannot:
        say(f"not checked: {UNCHECKED}, since {cannot}")
    except Refused as refused:
        sys.exit(f"release: {refused}")
