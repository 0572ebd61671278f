"""A statement about an image is good for that image, of that type, under that key; and what should be refused and is not fails."""

import importlib.util
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner

SPEC = importlib.util.spec_from_file_location(
    "release_image", Path(__file__).parents[1] / "tools" / "release_image.py"
)
release_image = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release_image)
Refused, state, verified = release_image.Refused, release_image.state, release_image.verified
PROVENANCE, BILL = release_image.PROVENANCE, release_image.BILL
DIGEST, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@pytest.fixture(scope="module")
def signer():
    return CryptoSigner.generate_ecdsa()


@pytest.fixture
def envelope(signer):
    return state(signer, DIGEST, PROVENANCE, release_image.provenance("0" * 40))


def test_a_statement_is_read_by_who_knows_the_key(signer, envelope):
    content = verified(envelope, signer.public_key, DIGEST, PROVENANCE)
    assert content["buildDefinition"]["resolvedDependencies"][0]["digest"] == {
        "gitCommit": "0" * 40
    }


def test_a_statement_about_another_image_or_of_another_type_is_refused(signer, envelope):
    with pytest.raises(Refused, match="about another image"):
        verified(envelope, signer.public_key, OTHER, PROVENANCE)
    with pytest.raises(Refused, match="states something else"):
        verified(envelope, signer.public_key, DIGEST, BILL)


def test_a_statement_that_was_changed_or_that_a_stranger_signed_is_refused(signer, envelope):
    forged = {**envelope, "payload": state(signer, OTHER, PROVENANCE, {})["payload"]}
    with pytest.raises(Refused):
        verified(forged, signer.public_key, OTHER, PROVENANCE)
    with pytest.raises(Refused):
        verified(envelope, CryptoSigner.generate_ecdsa().public_key, DIGEST, PROVENANCE)


def test_what_is_accepted_and_should_not_be_fails_the_check():
    def refuse():
        raise Refused("no")

    release_image.must_refuse("a changed image", refuse)
    with pytest.raises(Refused, match="a changed image was accepted"):
        release_image.must_refuse("a changed image", lambda: None)
