"""What a configuration names of the user's own, or of others: found, refused by name, or skipped where it is not installed."""

import sys
from types import ModuleType

import pytest

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.worker.user_code import NEEDED, resolve_backend

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    "backend", [name for name, package in NEEDED.items() if package not in sys.modules]
)
def test_a_backend_whose_package_is_not_installed_is_skipped_with_the_reason(backend):
    with pytest.raises(
        Unsupported,
        match=f"^backend {backend}: the package {NEEDED[backend]} is not installed here$",
    ):
        resolve_backend(backend)


def test_a_backend_whose_package_is_installed_is_found(tmp_path, monkeypatch):
    (tmp_path / "tvm.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_backend("tvm") == "tvm"


def test_every_backend_that_torch_names_without_having_it_is_known():
    """Those of torch's own modules that import a package which torch does not bring."""
    import torch

    named = {*torch.compiler.list_backends(exclude_tags=())}
    assert {"tvm", "openxla", "openxla_eval"} <= named & NEEDED.keys()
    assert "inductor" not in NEEDED


def test_a_backend_that_nobody_knows_is_refused_and_no_reason_to_skip():
    with pytest.raises(
        LookupError, match=r"backend: 'inducto' is not a backend of torch .*registered: .*inductor"
    ):
        resolve_backend("inducto")


def test_a_backend_of_ones_own_is_imported(monkeypatch):
    module = ModuleType("mine")
    module.compile = lambda graph, inputs: graph
    monkeypatch.setitem(sys.modules, "mine", module)
    assert resolve_backend("mine:compile") is module.compile
