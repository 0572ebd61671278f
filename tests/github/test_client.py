"""The client against the fake: retries, limits, redirects, pages, versions, Enterprise, and what may never be said."""

import contextlib
import logging
import shutil
import ssl
import subprocess
import time

import pytest
from fake_github import LOST, READ_ONLY, RESET, TOKEN, Fault, date, serve
from fake_github_state import REPOSITORY, sha_of

from ci_bench.errors import (
    GitHubBusy,
    GitHubFailed,
    GitHubInvalid,
    GitHubMissing,
    GitHubOdd,
    GitHubRefused,
    GitHubUnreachable,
    NotOnGitHub,
)
from ci_bench.github import http
from ci_bench.github.client import Client
from ci_bench.github.http import TRIES
from ci_bench.github.server import GithubServer

COMMENTS = "issues/7/comments"
SECONDARY = Fault(status=403, message="You have exceeded a secondary rate limit.")
USED_UP = Fault(
    status=403,
    headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000030"},
    message="API rate limit",
)
FAULTS = {
    "403 plain": (
        Fault(status=403, message="Resource not accessible by integration"),
        GitHubRefused,
    ),
    "403 secondary without header": (SECONDARY, None),
    "403 remaining 0": (USED_UP, None),
    "429 retry-after": (Fault(status=429, headers={"Retry-After": "5"}), None),
    "500": (Fault(status=500), None),
    "502": (Fault(status=502, raw=b"<html>Bad Gateway</html>"), None),
    "503": (Fault(status=503), None),
    "reset by peer": (RESET, None),
    "an answer that is lost after the work": (LOST, None),
    "401": (Fault(status=401, message="Bad credentials"), GitHubRefused),
    "404": (Fault(status=404, message="Not Found"), GitHubMissing),
    "409": (Fault(status=409, message="Conflict"), GitHubInvalid),
    "418": (Fault(status=418, message="I'm a teapot"), GitHubOdd),
}


def read(client, fake):
    return client.get("pulls/7").number("number") == 7


def create(client, fake):
    def seek():
        found = [one for one in client.pages(COMMENTS).items if one["body"] == "new"]
        from ci_bench.github.server import ApiRecord

        return ApiRecord(found[0]) if found else None

    client.write("POST", COMMENTS, {"body": "new"}, seek=seek)
    return fake.state.texts_of(7) == ["new"]


def change(client, fake):
    one = fake.state.add_comment(7, "old")
    client.write("PATCH", f"issues/comments/{one['id']}", {"body": "new"})
    return fake.state.texts_of(7) == ["new"]


def remove(client, fake):
    one = fake.state.add_comment(7, "old")
    client.delete(f"issues/comments/{one['id']}")
    return fake.state.texts_of(7) == []


METHODS = {"GET": read, "POST": create, "PATCH": change, "DELETE": remove}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("fault", "error"), FAULTS.values(), ids=FAULTS)
def test_each_fault_ends_as_it_should_for_each_method(fake, connect, method, fault, error):
    """Whatever goes wrong once, the work is done exactly once, or its error says why not."""
    fake.state.add_pull(7, sha_of("head"))
    fake.plan(method, "", fault)
    client = connect(patience_s=200)
    if error is None:
        assert METHODS[method](client, fake)
    elif method == "DELETE" and error is GitHubMissing:
        client.delete("issues/comments/1")
    else:
        with pytest.raises(error):
            METHODS[method](client, fake)


def test_a_create_whose_answer_is_lost_is_not_made_twice(fake, client):
    fake.plan("POST", COMMENTS, LOST)
    assert create(client, fake)
    assert fake.paths("POST") == [COMMENTS]


def test_a_create_that_was_not_made_is_made_after_looking(fake, client):
    fake.plan("POST", COMMENTS, RESET)
    assert create(client, fake)
    assert fake.paths() == [COMMENTS, COMMENTS, COMMENTS]
    assert [one.method for one in fake.seen] == ["POST", "GET", "POST"]


def test_a_create_that_nobody_can_look_for_is_not_sent_again(fake, client):
    fake.plan("POST", COMMENTS, LOST)
    with pytest.raises(GitHubUnreachable, match="no answer after 1 try"):
        client.write("POST", COMMENTS, {"body": "new"})
    assert fake.state.texts_of(7) == ["new"]


def test_a_create_that_a_limit_kept_from_happening_is_sent_again(fake, connect):
    fake.plan("POST", COMMENTS, SECONDARY)
    connect(patience_s=100).write("POST", COMMENTS, {"body": "new"})
    assert fake.state.texts_of(7) == ["new"]


def test_an_outage_ends_in_an_error_after_every_try(fake, client, slept):
    fake.plan("GET", "pulls", *[Fault(status=502)] * 20)
    with pytest.raises(GitHubUnreachable, match=f"a server error after {TRIES} tries: status 502"):
        client.get("pulls/7")
    assert len(fake.seen) == TRIES
    assert slept.waits == [1, 2, 4, 8]


def test_a_server_that_is_not_there(connect, slept):
    with pytest.raises(GitHubUnreachable, match="no answer after 5 tries: ConnectionError"):
        connect(api_url="http://127.0.0.1:9").get("pulls/7")


def test_waits_are_as_long_as_the_server_says(fake, connect, slept):
    fake.state.add_pull(7, sha_of("head"))
    fake.plan("GET", "pulls/7", USED_UP, Fault(status=429, headers={"Retry-After": "5"}))
    connect().get("pulls/7")
    assert slept.waits == [31, 5]


def test_all_requests_share_one_patience(fake, connect, slept):
    """A reset in half an hour must not hold a GPU runner for half an hour."""
    client = connect(patience_s=100)
    fake.state.add_pull(7, sha_of("head"))
    fake.plan("GET", "pulls/7", SECONDARY)
    client.get("pulls/7")
    fake.plan("GET", "pulls/7", SECONDARY)
    with pytest.raises(
        GitHubBusy, match=r"asks to wait 60 s; 100 s are allowed in all, 60 s are spent"
    ):
        client.get("pulls/7")
    assert sum(slept.waits) == 60


def test_a_reset_far_away_is_not_waited_for(fake, connect, slept):
    headers = {
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1800001800",
        "Date": date(1_800_000_000),
    }
    fake.plan(
        "GET", "pulls/7", Fault(status=403, headers=headers, message="API rate limit exceeded")
    )
    with pytest.raises(GitHubBusy, match="the rate limit is used up"):
        connect(patience_s=600).get("pulls/7")
    assert slept.waits == []


def test_writes_keep_a_second_apart(fake, client, slept):
    for _ in range(3):
        client.write("POST", COMMENTS, {"body": "new"})
    assert slept.waits == [1.0, 1.0]


# Redirects


def test_a_renamed_repository_is_followed_within_the_api(fake, client):
    fake.state.add_pull(7, sha_of("head"))
    target = f"{fake.url}/repos/{REPOSITORY}/pulls/7"
    fake.plan("GET", "pulls/8", Fault(status=301, headers={"Location": target}))
    assert client.get("pulls/8").number("number") == 7


def test_a_redirect_away_from_the_api_is_refused_and_takes_no_token_along(fake, client):
    fake.plan(
        "GET", "pulls/7", Fault(status=302, headers={"Location": f"{fake.storage.url}/steal"})
    )
    with pytest.raises(GitHubOdd, match=r"redirects to 127\.0\.0\.1, away from the API"):
        client.get("pulls/7")
    assert fake.storage.seen == []


def test_a_write_is_not_turned_into_a_read_by_a_redirect(fake, client):
    fake.plan(
        "POST",
        COMMENTS,
        Fault(status=302, headers={"Location": f"{fake.url}/repos/{REPOSITORY}/pulls/7"}),
    )
    with pytest.raises(GitHubOdd, match="was the repository renamed"):
        client.write("POST", COMMENTS, {"body": "new"})


def test_a_write_follows_a_redirect_that_keeps_it_a_write(fake, client):
    fake.plan(
        "POST",
        "issues/8",
        Fault(status=307, headers={"Location": f"{fake.url}/repos/{REPOSITORY}/{COMMENTS}"}),
    )
    client.write("POST", "issues/8/comments", {"body": "new"})
    assert fake.state.texts_of(7) == ["new"]


def test_a_circle_ends(fake, client):
    fake.plan(
        "GET",
        "pulls/7",
        *[Fault(status=302, headers={"Location": f"{fake.url}/repos/{REPOSITORY}/pulls/7"})] * 9,
    )
    with pytest.raises(GitHubOdd, match="ends in a redirect loop"):
        client.get("pulls/7")
    assert len(fake.seen) == 4


# Pages


def test_every_page_is_read(fake, client):
    for number in range(350):
        fake.state.add_comment(7, f"comment {number}")
    listing = client.pages(COMMENTS)
    assert [one["body"] for one in listing.items] == [f"comment {number}" for number in range(350)]
    assert listing.complete
    assert len(fake.seen) == 4


def test_a_listing_without_end_is_cut_and_says_so(fake, client):
    for number in range(30):
        fake.state.add_comment(7, f"comment {number}")
    fake.per_page = 10
    listing = client.pages(COMMENTS, most=2)
    assert (len(listing.items), listing.complete) == (20, False)


def test_a_next_page_elsewhere_is_not_asked(fake, client):
    link = f'<{fake.storage.url}/more?page=2>; rel="next"'
    fake.plan("GET", COMMENTS, Fault(status=200, headers={"Link": link}, raw=b"[]"))
    with pytest.raises(GitHubOdd, match="away from the API"):
        client.pages(COMMENTS)
    assert fake.storage.seen == []


ODD = {
    "a proxy's page": (b"<html>Sign in</html>", "is not JSON"),
    "an object": (b'{"message": "hello"}', "holds no list"),
    "a number": (b"7", "holds no list"),
    "deep": (b"[" * 100_000, "is not JSON"),
}


@pytest.mark.parametrize(("raw", "message"), ODD.values(), ids=ODD)
def test_an_answer_that_is_no_listing(fake, client, raw, message):
    fake.plan("GET", COMMENTS, Fault(status=200, raw=raw))
    with pytest.raises(GitHubOdd, match=message):
        client.pages(COMMENTS)


def test_an_endless_answer_is_cut(fake, client, monkeypatch):
    fake.plan("GET", COMMENTS, Fault(status=200, raw=b" " * 100_000))
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1)
    monkeypatch.setattr(
        http.Transport.exchange,
        "__kwdefaults__",
        {**http.Transport.exchange.__kwdefaults__, "most_bytes": 50_000},
    )
    with pytest.raises(GitHubOdd, match="more than 50,000 bytes"):
        client.pages(COMMENTS)


def test_a_trickling_answer_is_given_up(fake, monkeypatch):
    """Each chunk comes within the read timeout; all of them together have a limit too."""
    moments = iter([0.0, 0.0, 500.0, 500.0])
    from ci_bench.github.http import HttpClock

    sender = http.Transport(token=TOKEN, clock=HttpClock(monotonic=lambda: next(moments)))
    fake.plan("GET", COMMENTS, Fault(status=200, raw=b"[]" + b" " * 200_000))
    with (
        contextlib.closing(sender),
        pytest.raises(http.LostExchange, match="not complete after 120 s"),
    ):
        sender.exchange("GET", f"{fake.url}/repos/{REPOSITORY}/{COMMENTS}")


def test_a_server_that_does_not_answer_is_lost_after_the_read_timeout(fake, connect, monkeypatch):
    monkeypatch.setattr(http, "READ_S", 0.05)
    fake.when_seen = lambda _: time.sleep(0.3)
    with pytest.raises(GitHubUnreachable, match="ReadTimeout"):
        connect(patience_s=0).get("pulls/7")


# Enterprise


def test_an_enterprise_server_with_a_prefix_and_a_port(slept):
    with serve(prefix="/api/v3") as fake:
        fake.state.add_pull(7, sha_of("head"))
        for number in range(3):
            fake.state.add_comment(7, str(number))
        fake.per_page = 2
        with Client(
            GithubServer(repository=REPOSITORY, token=TOKEN, api_url=f"{fake.url}/"),
            clock=slept.clock,
        ) as client:
            assert client.get("pulls/7").number("number") == 7
            assert len(client.pages(COMMENTS).items) == 3


def test_a_version_that_the_server_does_not_know_is_left_out(fake, client):
    fake.versions = set()
    fake.state.add_pull(7, sha_of("head"))
    client.get("pulls/7")
    client.get("pulls/7")
    versions = ["X-GitHub-Api-Version" in one.headers for one in fake.seen]
    assert versions == [True, False, False]


def test_requests_say_who_asks_and_which_version(fake, client):
    fake.state.add_pull(7, sha_of("head"))
    client.get("pulls/7")
    headers = fake.seen[0].headers
    assert headers["User-Agent"].startswith("ci-bench/")
    assert headers["Accept"] == "application/vnd.github+json"
    assert headers["X-GitHub-Api-Version"] == "2022-11-28"


def test_requests_go_through_the_proxy_that_the_environment_names(fake, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", fake.url)
    with pytest.raises(GitHubMissing):
        connect(api_url="http://api.github.invalid").get("pulls/7")
    assert fake.seen[0].path == "/repos/octo-org/octo-repo/pulls/7"
    assert fake.seen[0].headers["Host"] == "api.github.invalid"


def test_no_proxy_is_honoured(fake, client, monkeypatch):
    fake.state.add_pull(7, sha_of("head"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert client.get("pulls/7").number("number") == 7


def test_a_password_in_a_proxys_address_is_not_said(connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://user:hunter2@127.0.0.1:9")
    with pytest.raises(GitHubUnreachable) as told:
        connect(api_url="http://api.github.invalid", patience_s=0).get("pulls/7")
    assert "hunter2" not in str(told.value)


def test_a_certificate_file_that_is_missing_is_named(connect, monkeypatch, tmp_path):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(GitHubUnreachable, match="check REQUESTS_CA_BUNDLE"):
        connect(api_url="https://127.0.0.1:9").get("pulls/7")


@pytest.fixture
def tls(tmp_path):
    """A server's certificate that no authority has signed but itself, and the file that makes it known."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, bundle = tmp_path / "key.pem", tmp_path / "own-ca.pem"
    subject = ("-subj", "/CN=own", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    make = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(bundle),
        *subject,
    )
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle, key)
    return context, bundle


def test_an_own_certificate_authority_is_honoured(tls, slept, monkeypatch):
    context, bundle = tls
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with (
        serve(tls=context) as fake,
        Client(
            GithubServer(repository=REPOSITORY, token=TOKEN, api_url=fake.url), clock=slept.clock
        ) as client,
    ):
        fake.state.add_pull(7, sha_of("head"))
        assert client.get("pulls/7").number("number") == 7


def test_an_unknown_certificate_authority_is_refused_at_once(tls, slept):
    context, _ = tls
    with (
        serve(tls=context) as fake,
        Client(
            GithubServer(repository=REPOSITORY, token=TOKEN, api_url=fake.url), clock=slept.clock
        ) as client,
    ):
        with pytest.raises(GitHubUnreachable, match="name its certificates in REQUESTS_CA_BUNDLE"):
            client.get("pulls/7")
        assert (fake.seen, slept.waits) == ([], [])


# Secrets


@pytest.mark.parametrize("token", [TOKEN, READ_ONLY])
@pytest.mark.parametrize(
    "fault",
    [
        None,
        RESET,
        Fault(status=401, message=f"Bad credentials {TOKEN} {READ_ONLY}"),
        Fault(status=500, message=TOKEN + READ_ONLY),
    ],
)
def test_the_token_is_in_no_log_and_in_no_error(fake, connect, caplog, token, fault):
    caplog.set_level(logging.DEBUG)
    client = connect(token)
    fake.plan("GET", "pulls", *([fault] * 9 if fault else []))
    for ask in (
        lambda: client.get("pulls/7"),
        lambda: client.write("PATCH", "issues/comments/5", {"body": "x"}),
    ):
        with pytest.raises(GitHubFailed) as told:
            ask()
        assert token not in repr(told.value)
        assert told.value.__cause__ is None
    assert caplog.records
    assert token not in caplog.text
    assert token not in repr(client.server)


def test_a_signed_address_is_in_no_log_and_in_no_error(fake, client, caplog):
    caplog.set_level(logging.DEBUG)
    one = fake.state.add_artifact(fake.state.add_run(sha_of("base")), {"results.json": "{}"})
    fake.storage.planned = [Fault(status=500), RESET]
    for _ in range(2):
        with pytest.raises(GitHubUnreachable) as told:
            client.fetch(client.location(f"actions/artifacts/{one['id']}/zip"), most_bytes=10_000)
        assert "SECRET" not in str(told.value)
    with pytest.raises(GitHubUnreachable) as told:
        client.fetch("http://127.0.0.1:9/archives/1.zip?sig=SECRET", most_bytes=10_000)
    assert "url: /archives/1.zip?***" in str(told.value)
    assert "SECRET" not in str(told.value)
    assert "connectionpool" in " ".join(record.name for record in caplog.records)
    assert "SECRET" not in caplog.text


def test_a_netrc_file_does_not_replace_the_token(fake, client, monkeypatch, tmp_path):
    """requests would send the password of a .netrc file in place of our header, and to the storage as well."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    fake.state.add_pull(7, sha_of("head"))
    one = fake.state.add_artifact(fake.state.add_run(sha_of("base")), {"results.json": "{}"})
    client.get("pulls/7")
    client.fetch(client.location(f"actions/artifacts/{one['id']}/zip"), most_bytes=10_000)
    assert {one.headers["Authorization"] for one in fake.seen} == {f"Bearer {TOKEN}"}
    assert "Authorization" not in fake.storage.seen[0].headers


BAD_SERVERS = {
    "no scheme": ({"api_url": "api.github.com"}, "the API's address"),
    "another scheme": ({"api_url": "file:///etc"}, "the API's address"),
    "a password": ({"api_url": "https://user:hunter2@api.github.com"}, "the API's address"),
    "no name": ({"repository": "octo-repo"}, "not of the form owner/name"),
    "a traversal": ({"repository": "../.."}, "not of the form owner/name"),
    "a query": ({"repository": "octo-org/octo-repo?x"}, "not of the form owner/name"),
    "an empty token": ({"token": ""}, "the token"),
    "a token with a line break": ({"token": "ghs_secret\n"}, "the token"),
}


@pytest.mark.parametrize(("fields", "message"), BAD_SERVERS.values(), ids=BAD_SERVERS)
def test_a_server_that_cannot_be_is_refused_before_anything_is_sent(fields, message):
    with pytest.raises(NotOnGitHub, match=message) as told:
        GithubServer(**{"repository": REPOSITORY, "token": "ghs_secret", **fields})
    assert "ghs_secret" not in str(told.value)
    assert "hunter2" not in str(told.value)


def test_a_missing_permission_names_what_is_needed(fake, connect):
    with pytest.raises(GitHubRefused, match="it needs issues=write; pull_requests=write"):
        connect(READ_ONLY).write("POST", COMMENTS, {"body": "x"})
