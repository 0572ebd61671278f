"""Losses in files of TensorBoard and W&B: those that the tools made, and those that nobody should believe."""

import struct
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from event_files import crc32c, field, framed, key, masked, tensorboard, varint, wandb

from ci_bench.formats import training_events
from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_events import File, form_of, read

DATA = Path(__file__).parent / "training_data"
EXPECTED = [2.5 / (step + 1) for step in range(12)]
LONGEST_S = 10.0


def files(pattern):
    return [
        File(folder=path.parent.name, name=path.name, content=path.read_bytes())
        for path in sorted(DATA.glob(pattern))
    ]


def of(*contents, folders=None):
    folders = folders or ["runs"] * len(contents)
    return [
        File(folder=folder, name=f"file{n}", content=one)
        for n, (folder, one) in enumerate(zip(folders, contents, strict=True))
    ]


def read_any(given, names=None):
    return read(given, names or {}, form_of(given[0].content))


def losses(given, names=None):
    return [[(record.step, record.loss) for record in rank] for rank in read_any(given, names)]


def steps(*values, first=0, tag="loss", at=100.0):
    """Events of one tag."""
    return tensorboard(
        *((first + number, at + number, {tag: value}) for number, value in enumerate(values))
    )


def test_event_files_of_torch_with_a_folder_for_each_rank() -> None:
    zero, one = read_any(files("rank_*/*"))
    assert [record.loss for record in zero] == pytest.approx(EXPECTED)
    assert [record.loss for record in one] == pytest.approx([value + 1 for value in EXPECTED])
    assert [(record.step, record.rank, record.grad_norm) for record in one] == [
        (step, 1, 1.0 + step) for step in range(12)
    ]
    assert all(later.clock_s >= record.clock_s > 1.7e9 for record, later in pairwise(zero))


@pytest.mark.parametrize("pattern", ["tensors/*", "x/*"])
def test_event_files_with_tensors_and_of_tensorboardx(pattern) -> None:
    (rank,) = read_any(files(pattern))
    assert [record.loss for record in rank] == pytest.approx(EXPECTED)


def test_a_run_of_wandb_without_its_evaluations() -> None:
    (rank,) = read_any(files("*.wandb"))
    assert rank[5].loss != rank[5].loss
    assert [record.loss for record in rank if record.loss == record.loss] == pytest.approx(
        EXPECTED[:5] + EXPECTED[6:]
    )
    assert [(record.grad_norm, record.tokens) for record in rank] == [
        (1.0 + step, 512) for step in range(12)
    ]
    assert [record.step for record in rank] == [step + step // 4 for step in range(12)]
    assert rank[0].clock_s > 1.7e9


def test_what_is_nested_in_wandb_is_joined_by_a_dot() -> None:
    assert read_any(files("*.wandb"), {"grad_norm": "lr.head"})[0][0].grad_norm == pytest.approx(
        0.1
    )


def test_the_checksums_are_those_of_the_standards() -> None:
    """RFC 3720, appendix B.4: 32 zeros, 32 times 0xFF."""
    assert (crc32c(bytes(32)), crc32c(b"\xff" * 32)) == (0x8A9136AA, 0x62A8AB43)
    assert training_events.checksum(b"123456789") == masked(b"123456789")


def test_numbers_as_tensors_of_every_kind() -> None:
    tensors = {
        "loss": key(1, 0) + b"\x01" + field(5, struct.pack("<f", 1.5)),
        "grad_norm": key(1, 0) + b"\x02" + key(6, 1) + struct.pack("<d", 2.5),
        "tokens": key(1, 0) + b"\x09" + field(10, varint(300)),
        "step_time": key(1, 0) + b"\x03" + field(4, struct.pack("<i", 7)),
        "iteration": key(1, 0) + b"\x09" + key(10, 0) + varint(3),
        "dt": key(1, 0) + b"\x01" + field(5, struct.pack("<ff", 1, 2)),  # two numbers are none
        "iter": key(1, 0) + b"\x07" + field(8, b"text"),
    }
    ((record,),) = read_any(of(tensorboard((9, 100.0, tensors))))
    assert (record.loss, record.grad_norm, record.tokens, record.time_s, record.step) == (
        1.5,
        2.5,
        300,
        7,
        3,
    )


def test_a_loss_that_is_no_number_stays_what_it_is() -> None:
    assert (
        str(losses(of(steps(1.0, float("nan"), float("inf")))))
        == "[[(0, 1.0), (1, nan), (2, inf)]]"
    )
    assert (
        str(losses(of(wandb({"loss": "NaN"}, {"loss": "-Infinity"}, {"loss": 2}))))
        == "[[(0, nan), (1, -inf), (2, 2.0)]]"
    )


def test_a_restart_counts_from_its_first_step_on() -> None:
    """In whatever order the files come; W&B's go on under one id."""
    before, after = steps(5.0, 4.0, 3.0, 2.0), steps(30.0, 20.0, 10.0, first=2, at=200.0)
    expected = [[(0, 5.0), (1, 4.0), (2, 30.0), (3, 20.0), (4, 10.0)]]
    assert losses(of(before, after)) == losses(of(after, before)) == expected
    resumed = [
        wandb({"loss": 5.0, "step": 0}, {"loss": 4.0, "step": 1}),
        wandb({"loss": 40.0, "step": 1, "_timestamp": 200.0}),
    ]
    assert losses(of(*resumed)) == [[(0, 5.0), (1, 40.0)]]


def test_folders_with_losses_are_ranks_in_the_order_of_their_numbers() -> None:
    contents = [steps(float(rank)) for rank in (10, 2, 0)]
    folders = ["r/rank_10", "r/rank_2", "r/rank_0"]
    with_evaluations = of(*contents, steps(9.0, tag="val/loss"), folders=[*folders, "r/val"])
    assert losses(with_evaluations) == [[(0, 0.0)], [(0, 2.0)], [(0, 10.0)]]


def test_a_rank_that_is_logged_says_whose_run_it_is() -> None:
    runs = [
        wandb(
            *({"loss": step + 10.0 * rank, "rank": rank} for step in range(2)), run=f"run{1 - rank}"
        )
        for rank in range(2)
    ]
    assert losses(of(*runs)) == [[(0, 0.0), (1, 1.0)], [(0, 10.0), (1, 11.0)]]


def test_a_file_that_ends_within_a_record_is_read_up_to_there() -> None:
    whole = steps(3.0, 2.0, 1.0)
    for cut in range(1, 36):
        assert losses(of(whole[:-cut])) == [[(0, 3.0), (1, 2.0)]], cut
    run = wandb({"loss": 3.0}, {"loss": 2.0})
    for cut in range(1, 59):
        assert losses(of(run[:-cut])) == [[(0, 3.0)]], cut


def test_records_that_blocks_cut_are_put_together() -> None:
    long = field(2, field(1, field(2, b"note") + field(16, b'"' + b"x" * 100_000 + b'"')))
    almost_a_block = field(2, field(1, field(2, b"note") + field(16, b'"' + b"x" * 32_720 + b'"')))
    assert losses(of(wandb({"loss": 3.0}, long, {"loss": 2.0}))) == [[(0, 3.0), (2, 2.0)]]
    assert losses(of(wandb(almost_a_block, {"loss": 2.0}))) == [[(1, 2.0)]]


@pytest.mark.parametrize(
    "content",
    [steps(3.0, 2.0, 1.0), wandb({"loss": 3.0}, {"loss": 2.0})],
    ids=["tensorboard", "wandb"],
)
def test_no_bit_that_flips_goes_unnoticed(content) -> None:
    """It is refused, or the file seems to end there; numbers that were read are right."""
    whole = losses(of(content))[0]
    for place in range(len(content)):
        broken = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        form = form_of(content)
        with suppress(Unreadable):
            (rank,) = read(of(broken), {}, form)
            assert [(record.step, record.loss) for record in rank] == whole[: len(rank)], place
            assert len(rank) < len(whole), place


def test_a_length_that_flipped_is_no_end_of_the_file() -> None:
    content = bytearray(steps(3.0, 2.0, 1.0))
    second = len(steps(3.0))
    content[second + 3] ^= 1
    with pytest.raises(
        Unreadable, match=f"the record at byte {second} is not what its checksum says"
    ):
        losses(of(bytes(content)))


@pytest.mark.parametrize(
    ("given", "names", "reason"),
    [
        (of(steps(1.0, tag="Loss/training")), {}, "nothing is called 'loss' or .*did you mean 'Loss/training'.*it has 'Loss/training'"),
        (of(steps(1.0, tag="Loss/train")), {"loss": "Loss/trian"}, "loss: nothing is called 'Loss/trian'; did you mean 'Loss/train'"),
        (of(steps(1.0)), {"grad_norm": "gn"}, "grad_norm: nothing is called 'gn'; there is 'loss'"),
        (of(tensorboard((0, 1.0, {"loss": 1.0}), (5, 1.0, {"gn": 1.0}))), {"grad_norm": "gn"}, "no record with a loss has 'gn'"),
        (of(tensorboard()), {}, "it contains no numbers"),
        (of(wandb()), {}, "it contains no numbers"),
        (of(wandb({"val/loss": 3.0, "note": "x", "pic": {"_type": "image"}})), {}, "it has '_step', '_timestamp', 'val/loss'$"),
        (of(steps(1.0) + steps(1.0)), {}, "step 0 of rank 0 is there twice"),
        (of(tensorboard((1, 1.0, {"loss": 1.0}), (1, 2.0, {"loss": 1.0}))), {}, "step 1 of rank 0 is there twice"),
        (of(steps(1.0, 2.0, 3.0), steps(1.0, 2.0, first=3, at=101.5)), {}, "file0 and file1 of runs were written at the same time"),
        (of(steps(1.0, 2.0), steps(1.0), folders=["a/train", "a/val"]), {}, "each folder with losses is a rank: a/train, a/val"),
        (of(wandb({"loss": 1}, run="one"), wandb({"loss": 1}, run="two")), {}, r"2 runs of W&B have losses \(one, two\)"),
        (of(wandb({"loss": "high"})), {}, "'high' is not a number"),
        (of(tensorboard((-1, 1.0, {"loss": 1.0}))), {}, "not a whole number"),
        (of(tensorboard((0, float("nan"), {"loss": 1.0}))), {}, "is not a valid time or amount"),
        (of(tensorboard(b"\x2a\x7f")), {}, "a message in it is malformed"),
        (of(tensorboard(b"\x2b")), {}, "a message in it is malformed"),
        (of(tensorboard(b"\x80" * 30)), {}, "a message in it is malformed"),
        (of(tensorboard(b"\x29\x00")), {}, "a message in it is malformed"),
        (of(wandb(b"\x12\x7f")), {}, "a message in it is malformed"),
        (of(b":W&B\xe1\xbe\x07"), {}, "another version"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_its_reason(given, names, reason) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_any(given, names)


def test_what_is_neither_is_told_apart() -> None:
    assert form_of(steps(1.0)) == "tensorboard"
    assert form_of(wandb()) == "wandb"
    for other in (
        b"",
        b"{",
        b'{"loss": 1, "step": 1}',
        b"iter 0: loss 10.9, time 31ms",
        b"\x1f\x8b" + bytes(20),
    ):
        assert form_of(other) is None


def test_there_are_bounds_of_bytes_names_and_records(monkeypatch) -> None:
    for bound, most, content in (
        ("MOST_BYTES", 50, steps(1.0)),
        ("MOST_NAMES", 1, tensorboard((0, 1.0, {"a": 1.0, "b": 1.0}))),
        ("MOST_MESSAGES", 2, steps(1.0, 2.0)),
        ("MOST_MESSAGES", 2, wandb({"loss": 1}, {"loss": 1})),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(training_events, bound, most)
            with pytest.raises(Unreadable, match=r"at most [0-9,]+ are read|has more than"):
                read_any(of(content))


def test_files_that_are_made_to_take_long_do_not() -> None:
    """Empty records, a summary of empty values, a varint that does not end, and what is no record."""
    value = field(1, field(1, b"a") + key(2, 5) + bytes(4))
    for content in (
        tensorboard() + framed(b"") * 20_000,
        tensorboard(field(5, value * 20_000)),
        tensorboard(b"\xff" * 300_000),
        tensorboard((0, 1.0, {"loss": 1.0})) + b"\xff" * 300_000,
    ):
        begun = time.process_time()
        with suppress(Unreadable):
            read_any(of(content))
        assert time.process_time() - begun < LONGEST_S
