"""Base and head are compared on the last call as well as on the first, in inference and in training."""

from dataclasses import replace

import pytest
from torchbench_builders import context, opened, own

from ci_bench.processes.messages import Keeping, OutputFiles
from ci_bench.suites.torchbench.run import open_workload
from ci_bench.worker.comparing import compare
from ci_bench.worker.keeping import FILE, Keeper

pytestmark = pytest.mark.engine


def kept(folder, model, mode):
    """What eager computes of a model: its record and its file."""
    folder.mkdir()
    case, _ = opened(**own(model, mode=mode))
    keeper = Keeper(folder=folder, keeping=Keeping.EVERYTHING)
    workload = open_workload(case, replace(context(folder), keep=keeper.keep))
    workload.verify(case.arms)
    return keeper.record, folder / FILE


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    ("head", "wrong"), [("HalfWhenCached", True), ("WholeWhenCached", False), ("Plain", False)]
)
def test_a_later_call_that_is_wrong_is_a_change(tmp_path, mode, head, wrong) -> None:
    base, base_file = kept(
        tmp_path / "base", "Plain" if head == "Plain" else "WholeWhenCached", mode
    )
    record, file = kept(tmp_path / "head", head, mode)
    files = OutputFiles(
        base=str(base_file), base_digest=base.file, head=str(file), head_digest=record.file
    )
    beside = compare(files, base=base.digest)
    changed = [one.name for one in beside.worst if one.wrong]
    assert bool(changed) == wrong, beside
    assert not wrong or any("last call" in name or "step 2" in name for name in changed), changed
