"""A maintainer has locked the pull request's conversation. GitHub answers 403 to a comment of a bot without write access to locked threads."""

import pytest
from bound_results import GIGABYTE
from fake_github import Fault
from fake_github_events import HEAD, workflow_run
from test_commands import both, outputs, leave

from ci_bench.commands.trusted.publishing import publish

LOCKED = Fault(status=403, message="Unable to create comment because issue is locked.")


@pytest.mark.parametrize("head", [GIGABYTE, 2 * GIGABYTE], ids=["passes", "fails"])
def test_locked(fake, job, flags, tmp_path, capsys, head):
    job("workflow_run", workflow_run())
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path, head=head))
    fake.plan("POST", "comments", *[LOCKED] * 9)
    code = publish(flags())
    said = capsys.readouterr()
    with capsys.disabled():
        print("\nEXIT", code)
        print("OUTPUTS", outputs(tmp_path))
        print("STDOUT", said.out[-2500:])
        print("STDERR", said.err[-1500:])
        print("SUMMARY", (tmp_path / "summary.md").read_text()[-1200:])
