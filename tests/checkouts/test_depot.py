"""What a node keeps of sources is made once, whoever asks at a time, and is its user's own."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from ci_bench.checkouts.depot import FOLDER, KEPT, depot_folder, place_of
from ci_bench.errors import ScratchFailed


class Maker:
    """Writes a file; counts how often it was asked to."""

    def __init__(self, *, keep=True, pause_s=0.0):
        self.times, self.keep, self.pause_s = 0, keep, pause_s

    def __call__(self, place: Path) -> bool:
        self.times += 1
        time.sleep(self.pause_s)
        (place / "made").touch(exist_ok=False)
        return self.keep


def use(depot: Path, make: Maker, name: str = "a") -> None:
    with place_of(name, depot, make) as place:
        assert (place / "made").exists()


def test_what_was_made_is_found_again(tmp_path):
    make = Maker()
    use(tmp_path / "d", make)
    use(tmp_path / "d", make)
    assert make.times == 1


def test_those_who_come_at_once_make_it_once(tmp_path):
    make = Maker(pause_s=0.05)
    threads = [threading.Thread(target=use, args=(tmp_path / "d", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert make.times == 1


def test_what_was_not_made_to_its_end_is_made_anew(tmp_path):
    def fails(place: Path) -> bool:
        (place / "made").write_text("half of it")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), place_of("a", tmp_path / "d", fails):
        pass
    make = Maker()
    use(tmp_path / "d", make)
    assert make.times == 1


def test_what_may_not_be_kept_is_used_alone_and_made_anew(tmp_path):
    make = Maker(keep=False)
    with (
        place_of("a", tmp_path / "d", make),
        (tmp_path / "d" / "a.lock").open() as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    use(tmp_path / "d", make)
    assert make.times == 2


def test_the_oldest_are_removed_but_not_what_is_in_use(tmp_path):
    depot, names = tmp_path / "d", [str(number) for number in range(KEPT + 2)]
    with place_of("0", depot, Maker()):
        for age, name in enumerate(names):
            use(depot, Maker(), name)
            os.utime(depot / f"{name}.lock", (age, age))
        use(depot, Maker(), "new")
        left = {path.name for path in depot.iterdir() if path.is_dir()}
        assert left == {"0", "new", *names[-(KEPT - 1) :]}


@pytest.mark.parametrize("mode", [0o777, 0o770], ids=oct)
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(mode)
    make = Maker()
    with (
        pytest.raises(ScratchFailed, match="others could write there"),
        place_of("a", tmp_path / "d", make),
    ):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "d")
    (tmp_path / "d").chmod(0o700)
    with (
        pytest.raises(ScratchFailed, match="others could write there"),
        place_of("a", tmp_path / "link", make),
    ):
        pass
    assert make.times == 0


def test_it_lies_in_this_users_folder_or_where_the_variable_says(tmp_path):
    assert depot_folder({FOLDER: str(tmp_path)}) == tmp_path
    assert depot_folder({}).name == f"ci-bench-sources-{os.getuid()}"
