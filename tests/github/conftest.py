"""A fake GitHub, a client of it, and a clock that waits for nobody."""

import os
from dataclasses import dataclass, field

import pytest
from bound_results import CONFIG
from fake_github import TOKEN, serve
from fake_github_events import BASE, HEAD, environment
from fake_github_state import REPOSITORY, sha_of

from ci_bench.command_line.settings import Publishing
from ci_bench.commands.trusted import publishing
from ci_bench.github.client import Client
from ci_bench.github.http import HttpClock
from ci_bench.github.server import GithubServer


@dataclass
class Slept:
    """Time that passes only by waiting for it."""

    now: float = 1_800_000_000.0
    waits: list = field(default_factory=list)

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds

    @property
    def clock(self):
        return HttpClock(
            now=lambda: self.now, monotonic=lambda: self.now, sleep=self.sleep, chance=lambda: 0.0
        )


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NETRC",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def fake():
    """Fails the test where a request or a reply breaks GitHub's description."""
    with serve() as running:
        yield running
        assert running.faults == []


@pytest.fixture
def slept():
    return Slept()


@pytest.fixture
def connect(fake, slept):
    """Clients of the fake, closed in the end."""
    opened = []

    def make(token=TOKEN, **options):
        server = GithubServer(
            repository=REPOSITORY, token=token, api_url=options.pop("api_url", fake.url)
        )
        client = Client(server, clock=options.pop("clock", slept.clock), **options)
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__()


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """Settings with the flags' defaults; GitHub is not waited for."""
    for name in ("PATIENCE_S", "HOSTED_PATIENCE_S"):
        monkeypatch.setattr(publishing, name, 2.0)

    def make(**given):
        return Publishing(
            environ=os.environ, here=tmp_path, **{"output": tmp_path / "out", **given}
        )

    return make


@pytest.fixture
def job(fake, tmp_path, monkeypatch):
    """A step of a workflow whose GitHub is the fake."""
    monkeypatch.setattr("ci_bench.github.client.HttpClock", lambda: HttpClock(sleep=lambda _: None))
    fake.state.history = [BASE, *(sha_of(f"main {number}") for number in range(1, 20))]
    fake.state.files["main", "ci-bench.yml"] = CONFIG.encode()
    fake.state.files[HEAD, "ci-bench.yml"] = CONFIG.encode()

    def enter(name, event, *, token=TOKEN, **more):
        files = {
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        }
        server = {"GITHUB_API_URL": fake.url, "GITHUB_TOKEN": token}
        for key, value in environment(tmp_path, name, event, **files, **server, **more).items():
            monkeypatch.setenv(key, value)

    return enter
