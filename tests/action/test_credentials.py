"""Credentials that the code under test could read: each form is refused by its place, and what only looks like one is not."""

import os
import subprocess

import pytest

import credentials
from faults import Fault
from preflight import check_checkout, check_variables

TOKEN = "ghs_" + "0123456789abcdefghijABCDEFGHIJ012345"
OLD_TOKEN = "0123456789abcdef" * 2 + "01234567"

SETTINGS = {
    "a header": ('http "https://github.com/"', "extraheader", f"AUTHORIZATION: basic {TOKEN}"),
    "a header of another site": ("http", "extraHeader", "X-Anything: secret"),
    "a user and password": (
        'remote "origin"',
        "url",
        f"https://x-access-token:{TOKEN}@github.com/o/r",
    ),
    "a password of one word": ('remote "origin"', "url", "https://me:secret@github.com/o/r"),
    "a password without a user": ('remote "origin"', "url", "https://:secret@github.com/o/r"),
    "an encoded password": ('remote "origin"', "url", "https://me:s%40cret@github.com/o/r"),
    "a password of ssh": ('remote "origin"', "url", "ssh://me:secret@example.org/o/r"),
    "the token as user": ('remote "origin"', "url", f"https://{TOKEN}@github.com/o/r"),
    "an old token as user": ('remote "origin"', "url", f"https://{OLD_TOKEN}@github.com/o/r"),
    "the token with an empty password": (
        'remote "origin"',
        "url",
        f"https://{TOKEN}:@github.com/o/r",
    ),
    "the token before x-oauth-basic": (
        'remote "origin"',
        "url",
        f"https://{OLD_TOKEN}:x-oauth-basic@github.com/o/r",
    ),
    "a token in a query": ('remote "origin"', "url", "https://example.org/o/r?private_token=abc"),
    "pushurl": ('remote "origin"', "pushurl", f"https://{TOKEN}@github.com/o/r"),
    "a branch's push remote": ('branch "main"', "pushRemote", f"https://{TOKEN}@github.com/o/r"),
    "a submodule": ('submodule "x"', "url", f"https://{TOKEN}@github.com/o/x"),
    "insteadOf": (f'url "https://x:{TOKEN}@github.com/"', "insteadOf", "https://github.com/"),
    "pushInsteadOf": (f'url "https://{TOKEN}@github.com/"', "pushInsteadOf", "https://github.com/"),
    "lfs": ("lfs", "url", f"https://{TOKEN}@lfs.example.org/o/r"),
    "a proxy": ("http", "proxy", "http://user:secret@proxy.example:8080"),
    "a proxy without a scheme": ('remote "origin"', "proxy", "user:secret@proxy.example:8080"),
    "a helper that stores": ("credential", "helper", "store --file /somewhere"),
    "a helper of one site": (
        'credential "https://github.com"',
        "helper",
        "!f() { echo password=secret; }; f",
    ),
    "a key of ssh": ("core", "sshCommand", "ssh -i /home/runner/key -o StrictHostKeyChecking=yes"),
    "a tool's token": ("github", "oauth-token", "abcdef"),
    "a mail password": ("sendemail", "smtpPass", "secret"),
}
HARMLESS = {
    "an address": ('remote "origin"', "url", "https://github.com/o/r"),
    "git's own user": ('remote "origin"', "url", "https://git@github.com/o/r"),
    "a user of ssh": ('remote "origin"', "url", "ssh://git@github.com/o/r"),
    "ssh in short": ('remote "origin"', "url", "git@github.com:o/r.git"),
    "an organisation as user": (
        'remote "origin"',
        "url",
        "https://some-organisation@dev.azure.com/o/p/_git/r",
    ),
    "a header that is taken back": ('http "https://github.com/"', "extraheader", ""),
    "a helper that is taken back": ("credential", "helper", ""),
    "a user's name": ("credential", "username", "x-access-token"),
    "a proxy without a password": ("http", "proxy", "http://proxy.example:8080"),
    "a command of ssh": ("core", "sshCommand", "ssh -o BatchMode=yes"),
    "an include that is gone": ("include", "path", "gone.config"),
    "an author": ("user", "email", "someone@example.org"),
    "a program that asks": ("core", "askPass", "/usr/bin/ask"),
    "an address for short": ('url "git@github.com:"', "insteadOf", "https://github.com/"),
}
FILES = {
    "a stored credential": (".git/credentials", f"https://x:{TOKEN}@github.com\n"),
    "a log": (".git/logs/HEAD", f"0 1 a <a> 0 +0000\tclone: from https://{TOKEN}@github.com/o/r\n"),
    "what was fetched": (
        ".git/FETCH_HEAD",
        f"abc\t\tbranch 'main' of https://x:{TOKEN}@github.com/o/r\n",
    ),
    "a hook": (
        ".git/hooks/pre-push",
        f"#!/bin/sh\ncurl -H 'Authorization: Bearer {TOKEN}' https://example.org\n",
    ),
    "a submodule's configuration": (
        ".git/modules/a/modules/b/config",
        '[remote "o"]\nurl = https://me:secret@example.org/a\n',
    ),
    "a worktree's configuration": (
        ".git/worktrees/w/config.worktree",
        f'[remote "o"]\nurl = https://{TOKEN}@github.com/a\n',
    ),
    "another checkout": (
        "models/.git/config",
        f'[remote "o"]\nurl = https://{TOKEN}@github.com/a\n',
    ),
    ".netrc": (".netrc", "machine github.com login x password secret\n"),
    ".netrc over lines": ("sub/.netrc", "machine github.com\n  login x\n  password secret\n"),
    ".gitmodules": (
        ".gitmodules",
        f'[submodule "x"]\npath = x\nurl = https://{TOKEN}@github.com/o/x\n',
    ),
    "pip's index": (
        "pip.conf",
        f"[global]\nindex-url = https://user:{TOKEN}@pypi.example/simple\n",
    ),
    "npm's token": (".npmrc", "//npm.example.org/:_authToken=abcdef\n"),
    "docker's login": (".docker/config.json", '{"auths": {"ghcr.io": {"auth": "eHg6eXk="}}}'),
    "Google's": (
        "gha-creds-0123456789abcdef.json",
        '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----"}',
    ),
    "Hugging Face's": (".cache/huggingface/token", "hf_" + "abcdefghijABCDEFGHIJ0123"),
}
HARMLESS_FILES = {
    "a variable's name": (".npmrc", "//npm.example.org/:_authToken=${NPM_TOKEN}\n"),
    "a public index": ("pip.conf", "[global]\nindex-url = https://pypi.example/simple\n"),
    "another file": ("README.md", "git clone https://user:password@example.org/x\n"),
    "an example": (".env", "HOST=localhost\n"),
}


def git(folder, *arguments):
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        check=True,
        env={**os.environ, **own},
        capture_output=True,
    )


def write(checkout, name, text):
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def set_key(checkout, section, key, value):
    with (checkout / ".git" / "config").open("a") as file:
        file.write(f'[{section}]\n\t{key} = "{value}"\n')


def refusal(checkout, home=None):
    with pytest.raises(Fault) as raised:
        check_checkout(checkout, home)
    assert raised.value.code == 2
    for secret in (TOKEN, OLD_TOKEN, "secret@", "eHg6eXk"):
        assert secret not in str(raised.value)
    assert "persist-credentials: false" in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("what", SETTINGS)
def test_a_credential_in_git_is_refused(checkout, what):
    section, key, value = SETTINGS[what]
    set_key(checkout, section, key, value)
    assert f".git/config ({section.partition(' ')[0]}." in refusal(checkout)
    assert key.lower() in refusal(checkout)


@pytest.mark.parametrize("what", HARMLESS)
def test_a_harmless_setting_is_accepted(checkout, what):
    set_key(checkout, *HARMLESS[what])
    check_checkout(checkout)


@pytest.mark.parametrize("what", FILES)
def test_a_credential_in_a_file_is_refused(checkout, what):
    name, text = FILES[what]
    write(checkout, name, text)
    assert f"in {name} (" in refusal(checkout)


@pytest.mark.parametrize("what", HARMLESS_FILES)
def test_a_harmless_file_is_accepted(checkout, what):
    write(checkout, *HARMLESS_FILES[what])
    check_checkout(checkout)


@pytest.mark.parametrize("name", [".npmrc", "sub/pip.conf", ".gitmodules"])
def test_a_tracked_file_is_no_secret(checkout, name):
    """The repository's own example, which everybody can read."""
    write(checkout, name, "[global]\nindex-url = https://user:secret@example.org/simple\n")
    git(checkout, "add", "-f", ".")
    git(checkout, "commit", "-qm", "x")
    check_checkout(checkout)
    write(checkout, name, f"[global]\nindex-url = https://user:{TOKEN}@example.org/simple\n")
    assert name in refusal(checkout)


INCLUDES = {
    "always": ("include", "path"),
    "for this folder": ('includeIf "gitdir:/somewhere/else/"', "path"),
    "for a branch": ('includeIf "onbranch:main"', "path"),
}


@pytest.mark.parametrize("place", ["../outside.config", "inside.config"])
@pytest.mark.parametrize("what", INCLUDES)
def test_included_files_are_read(checkout, what, place):
    """As newer versions of actions/checkout leave it, outside of the checkout."""
    set_key(checkout, *INCLUDES[what], place)
    write(
        checkout,
        f".git/{place}",
        '[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic eHg6eXk=\n',
    )
    assert "http.https://github.com/.extraheader" in refusal(checkout)


def test_includes_in_a_circle_end(checkout):
    set_key(checkout, "include", "path", "config")
    check_checkout(checkout)


def test_a_linked_checkout_is_followed(checkout, tmp_path):
    git(checkout, "commit", "-q", "--allow-empty", "-m", "x")
    git(checkout, "worktree", "add", "-q", str(tmp_path / "linked"))
    check_checkout(tmp_path / "linked")
    set_key(checkout, *SETTINGS["a header"])
    assert "extraheader" in refusal(tmp_path / "linked")


def test_what_git_cannot_parse_is_read(checkout):
    with (checkout / ".git" / "config").open("a") as file:
        file.write(
            f'[http "https://github.com/"]\n\textra\\\nheader = AUTHORIZATION: basic {TOKEN}\n'
        )
    assert "(a token)" in refusal(checkout)


def test_without_git_the_text_is_read(checkout, monkeypatch):
    monkeypatch.setattr(credentials, "_git", lambda *_, **__: "")
    set_key(checkout, *SETTINGS["the token as user"])
    refusal(checkout)


def test_the_home_counts_where_it_can_be_read(checkout, tmp_path):
    home = tmp_path / "home"
    write(home, ".netrc", "machine github.com login x password secret\n")
    check_checkout(checkout)
    assert str(home / ".netrc") in refusal(checkout, home)
    (home / ".netrc").unlink()
    write(home, ".gitconfig", "[credential]\n\thelper = cache\n")
    check_checkout(checkout, home)
    write(
        home,
        ".gitconfig",
        f'[url "https://x:{TOKEN}@github.com/"]\n\tinsteadOf = https://github.com/\n',
    )
    assert str(home / ".gitconfig") in refusal(checkout, home)


VARIABLES = {
    "a token": ("HF_HUB", TOKEN, True),
    "an address": ("PIP_INDEX_URL", "https://user:secret@example.org/simple", True),
    "a setting of git's": ("GIT_CONFIG_VALUE_0", f"AUTHORIZATION: basic {TOKEN}", True),
    "a key": ("DEPLOY", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc", True),
    "an index": ("PIP_INDEX_URL", "https://example.org/simple", False),
    "a proxy, which is asked for": ("HTTPS_PROXY", "http://user:secret@proxy.example:8080", False),
    "a number": ("OMP_NUM_THREADS", "4", False),
}


@pytest.mark.parametrize("what", VARIABLES)
def test_variables_that_are_passed_on_hold_no_credential(what):
    name, value, refused = VARIABLES[what]
    check_variables([], {name: value})
    if not refused:
        check_variables([name], {name: value})
        return
    with pytest.raises(Fault, match=name) as raised:
        check_variables(["OTHER", name], {name: value})
    assert value not in str(raised.value)
