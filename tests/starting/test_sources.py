"""What one source has, by its syntax: programs and their losses, loops, modules with the shape of their input."""

import pytest

from ci_bench.starting.sources import (
    LossReport,
    SourceProgram,
    read_program,
    reads_metadata,
    uses_gpu,
)

NET = """
class Net(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        self.first = {layer}
        self.second = nn.Linear(7, 2)

    def forward(self, {taken}):
        return {result}
"""


@pytest.mark.parametrize(
    ("given", "layer", "result", "shape", "high"),
    [
        ("width=16", "nn.Linear(width, 4)", "self.first(x)", (32, 16), None),
        (
            "*, width=16",
            "nn.Linear(out_features=4, in_features=width)",
            "self.first(x)",
            (32, 16),
            None,
        ),
        ("width=16", "nn.Linear(width, 4)", "self.first(x.transpose(1, 2))", (8, 16, 16), None),
        ("", "nn.Conv2d(3, 8, 3)", "self.first(x)", (8, 3, 32, 32), None),
        ("", "nn.Conv1d(3, 8, 3)", "self.first(x)", (8, 3, 64), None),
        ("tokens=100", "nn.Embedding(tokens, 8)", "self.first(x)", (8, 16), 100),
    ],
)
def test_the_first_layer_gives_the_shape(given, layer, result, shape, high):
    (found,) = read_program(
        NET.format(given=given, layer=layer, taken="x", result=result), "net.py"
    ).modules
    assert (found.name, found.shape, found.high) == ("Net", shape, high)


@pytest.mark.parametrize(
    ("given", "layer", "taken"),
    [
        ("width", "nn.Linear(width, 4)", "x"),
        ("config", "nn.Linear(config.width, 4)", "x"),
        ("width=16", "nn.Linear(2 * width, 4)", "x"),
        ("width=16", "nn.Linear(width, 4)", "x, y"),
        ("width=True", "nn.Linear(width, 4)", "x"),
        ("width=1 << 30", "nn.Linear(width, 4)", "x"),
    ],
)
def test_a_module_that_needs_more_is_left_out(given, layer, taken):
    assert (
        read_program(
            NET.format(given=given, layer=layer, taken=taken, result="x"), "net.py"
        ).modules
        == ()
    )


GUARD = "if __name__ == '__main__':\n    main()\n"
TRAIN = "def main():\n    loss.backward()\n    {}\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            TRAIN.format("print(f'loss {loss}')") + GUARD,
            SourceProgram(is_program=True, losses=LossReport.PRINTED),
        ),
        (
            TRAIN.format("logger.info('loss %s', loss)") + GUARD,
            SourceProgram(is_program=True, losses=LossReport.LOGGED),
        ),
        (
            TRAIN.format("ci_bench.step(loss=loss)") + GUARD,
            SourceProgram(is_program=True, losses=LossReport.STEPS),
        ),
        (TRAIN.format("print('done')") + GUARD, SourceProgram(is_program=True)),
        (TRAIN.format("print('loss')"), SourceProgram(losses=LossReport.PRINTED)),
        ("def main():\n    print('loss')\n" + GUARD, SourceProgram(is_program=True)),
        (
            "parser.add_argument('data')\n" + GUARD,
            SourceProgram(is_program=True, takes_arguments=True),
        ),
        (
            "parser.add_argument('--data', required=True)\n" + GUARD,
            SourceProgram(is_program=True, takes_arguments=True),
        ),
        (
            "parser.add_argument('data', nargs='?')\nparser.add_argument('--seed')\n" + GUARD,
            SourceProgram(is_program=True),
        ),
        ("print(1)\n", SourceProgram(is_program=True)),
        ("def f():\n    print(1)\n", SourceProgram()),
    ],
)
def test_a_program_is_told_from_a_module(source, expected):
    assert read_program(source, "train.py") == expected


LOOP = "import ci_bench\ndef {}:\n    while True:\n        loss.backward()\n        yield {}\n"


@pytest.mark.parametrize(
    ("head", "value", "loops"),
    [
        ("train()", "ci_bench.Step(loss=loss)", ("train",)),
        ("train(width=3)", "Step(loss=loss)", ("train",)),
        ("train(width)", "ci_bench.Step(loss=loss)", ()),
        ("_train()", "ci_bench.Step(loss=loss)", ()),
        ("train()", "loss", ()),
    ],
)
def test_a_loop_yields_its_steps(head, value, loops):
    assert read_program(LOOP.format(head, value), "train.py").loops == loops


def test_imports_say_what_a_package_needs():
    assert uses_gpu("def f():\n    from torch import nn\n")
    assert not uses_gpu("import torchless\n# import torch\nname = 'torch'\n")
    assert reads_metadata("from importlib.metadata import version")
    assert not reads_metadata("import importlib")
