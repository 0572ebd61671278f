"""`setup --models` against a hub on the loopback: who is sent the token, what is stored, what is said where the hub says no.

State: a server that has one public and one gated model, as the hub answers of them; a fresh cache
for each run.
"""

import json
import os
import subprocess
import sys
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import yaml

from ci_bench.configuration.config import load_config
from ci_bench.processes.environ import worker_environment
from ci_bench.suites.contract import HubModel

TOKEN = "hf_" + "s3cr3t" * 5
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "evil.py": b"raise 1",
}


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, *, body):
        sent = self.headers.get("Authorization", "")
        self.server.seen.append((self.path, sent))
        path = self.path.partition("?")[0]
        if "own/none" in path:
            return self._send(404, {"X-Error-Code": "RepoNotFound"}, b"", body=body)
        if "own/gated" in path and sent != f"Bearer {TOKEN}":
            return self._send(
                401 if not sent else 403, {"X-Error-Code": "GatedRepo"}, b"", body=body
            )
        if "/tree/" in path:
            if "own/broken" in path:
                return self._send(200, {"Content-Type": "application/json"}, b'{"a": 1}', body=body)
            told = [
                {"type": "file", "path": name, "size": len(kept), "oid": "0" * 40}
                for name, kept in FILES.items()
            ]
            return self._send(
                200, {"Content-Type": "application/json"}, json.dumps(told).encode(), body=body
            )
        if path.startswith("/api/models/"):
            told = {
                "id": "own/x",
                "sha": COMMIT,
                "siblings": [{"rfilename": name} for name in FILES],
            }
            return self._send(
                200, {"Content-Type": "application/json"}, json.dumps(told).encode(), body=body
            )
        content = FILES[path.rpartition("/")[2]]
        headers = {"ETag": f'"{sha256(content).hexdigest()[:40]}"', "X-Repo-Commit": COMMIT}
        return self._send(200, headers, content, body=body)

    def _send(self, status, headers, content, *, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.seen = []
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetched(hub, folder, *models, token=None, **more):
    """What the command ended with and said, and the files in the cache."""
    entries = {"transformers": [{"model": list(models)}], **more} if models else more
    (folder / "ci-bench.yml").write_text(yaml.safe_dump({"schema_version": 1, "suites": entries}))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environ = {
        **kept,
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(folder / "cache"),
    }
    environ |= {"HF_TOKEN": token} if token else {}
    command = [sys.executable, "-m", "ci_bench.cli", "setup", "--models"]
    done = subprocess.run(
        command, cwd=folder, env=environ, check=False, timeout=120, capture_output=True, text=True
    )
    stored = sorted(path.name for path in folder.glob("cache/hub/models--*/snapshots/*/*"))
    return done.returncode, done.stdout + done.stderr, stored


def test_a_gated_model_is_fetched_with_the_token_and_code_is_not(hub, tmp_path):
    code, said, stored = fetched(hub, tmp_path, "own/gated", token=TOKEN)
    assert code == 0, said
    assert stored == ["config.json", "tokenizer.json"]
    assert "own/gated (main) is in the cache" in said
    assert TOKEN not in said
    assert TOKEN not in "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    )


def test_weights_are_fetched_where_they_are_read(hub, tmp_path):
    code, said, stored = fetched(hub, tmp_path, {"path": "own/open", "pretrained": True})
    assert (code, stored) == (0, ["config.json", "model.safetensors", "tokenizer.json"]), said
    assert {sent for _, sent in hub.seen} == {""}


@pytest.mark.parametrize(
    ("model", "token", "fault"),
    [
        (
            "own/gated",
            None,
            "own/gated is gated: its terms have to be accepted on its page by the account whose token",
        ),
        (
            "own/gated",
            "hf_wrong",
            "own/gated is gated: its terms have to be accepted on its page by the account of HF_TOKEN",
        ),
        ("own/broken", TOKEN, "own/broken: TypeError: "),
        ("own/none", None, "own/none: the hub has no such model, or it wants HF_TOKEN"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_named_and_measuring_could_not_begin(
    hub, tmp_path, model, token, fault
):
    code, said, stored = fetched(hub, tmp_path, "own/open", model, token=token)
    assert code == 3
    assert fault in said
    assert "own/open (main) is in the cache" in said
    assert stored == ["config.json", "tokenizer.json"]


def test_nothing_is_asked_where_no_model_is_the_hubs(hub, tmp_path):
    code, said, _ = fetched(hub, tmp_path, "bert", token=TOKEN, torchbench=[{"models": ["mlp"]}])
    assert (code, hub.seen) == (0, []), said
    assert "no model of this configuration comes from the hub" in said


def test_no_code_of_the_tree_runs_with_the_token(hub, tmp_path):
    """Own models, optimizers and benchmarks are named in a configuration; a package beside it would be found first."""
    spy = "import os, pathlib; pathlib.Path(__file__).with_suffix('.saw').write_text(os.environ.get('HF_TOKEN', ''))"
    for name in ("own_models", "own_benchmarks", "own_plugin"):
        (tmp_path / f"{name}.py").write_text(spy)
    more = {
        "torchbench": [
            {"source": "own", "models": ["own_models:make"], "optimizer": "own_models:Adam"}
        ],
        "training_loss": [
            {
                "name": "mine",
                "model": {"factory": "own_models:make"},
                "dataset": {"factory": "own_models:rows"},
            }
        ],
        "functions": [{"path": "own_benchmarks.py"}],
    }
    code, said, _ = fetched(hub, tmp_path, "own/gated", token=TOKEN, **more)
    assert code == 0, said
    assert list(tmp_path.glob("*.saw")) == []


def test_training_names_its_model_too(tmp_path):
    from ci_bench.commands.fetch_models import models_of

    entries = {
        "training_loss": [{"model": {"path": "own/bert", "revision": "v1"}}],
        "transformers": [{"model": "own/bert"}],
    }
    (tmp_path / "ci-bench.yml").write_text(yaml.safe_dump({"schema_version": 1, "suites": entries}))
    assert set(models_of(load_config(tmp_path / "ci-bench.yml"))) == {
        HubModel(path="own/bert", revision="v1", weights=True),
        HubModel(path="own/bert", revision=None, weights=False),
    }


def test_workers_are_never_given_the_token():
    assert "HF_TOKEN" not in worker_environment({"HF_TOKEN": TOKEN, "HF_HOME": "/models"})
