"""A current folder that cannot be looked into is told, with what to do."""

import os
import stat

import pytest

from ci_bench import cli
from ci_bench.commands import config_files
from ci_bench.errors import ExitCode


@pytest.mark.parametrize("command", ["list", "run"])
def test_unreadable_folder_is_reported(tmp_path, monkeypatch, capsys, command):
    """Root may enter any folder; a name that no folder can hold is refused to everybody, in the same place."""
    monkeypatch.chdir(tmp_path)
    if os.geteuid() == 0:
        monkeypatch.setattr(config_files, "NAME", "x" * 5000)
    else:
        tmp_path.chmod(0)
    try:
        code = cli.main([command])
    finally:
        tmp_path.chmod(stat.S_IRWXU)
    said = capsys.readouterr().err
    assert code == ExitCode.BAD_INPUT
    assert f"cannot be looked for in {tmp_path}" in said
    assert "--config" in said
