"""A fake GitHub, a client of it, and a clock that waits for nobody."""

from dataclasses import dataclass, field

import pytest
from fake_github import TOKEN, serve
from fake_github_state import REPOSITORY

from ci_bench.github.client import Client
from ci_bench.github.clock import Clock
from ci_bench.github.server import Server


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
        return Clock(now=lambda: self.now, monotonic=lambda: self.now, sleep=self.sleep, chance=lambda: 0.0)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"):
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
        server = Server(repository=REPOSITORY, token=token, api_url=options.pop("api_url", fake.url))
        client = Client(server, clock=options.pop("clock", slept.clock), **options)
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__()


@pytest.fixture
def client(connect):
    return connect()
