"""The old tool's command line: every flag means what it meant, and a bad value is named by its flag."""

import argparse
import shlex

import pytest

from ci_bench import cli
from ci_bench.command_line import fastrnns_flags
from ci_bench.commands.measuring import Measurement
from ci_bench.errors import BadInput
from ci_bench.formats import fastrnns as formats
from ci_bench.runner.planning import plan
from ci_bench.suites.fastrnns.variants import GROUPS


def parse(*argv):
    parser = argparse.ArgumentParser()
    fastrnns_flags.add_flags(parser)
    return parser.parse_args(argv)


def request(*argv):
    return fastrnns_flags.read_flags(parse(*argv))


def options(*argv):
    (entry,) = request(*argv).config.entries
    assert entry.suite == "fastrnns"
    return entry.options


def refused(*argv):
    with pytest.raises(BadInput) as caught:
        request(*argv)
    return str(caught.value)


def test_help_has_the_suites_defaults():
    parser = argparse.ArgumentParser()
    fastrnns_flags.add_flags(parser)
    text = " ".join(parser.format_help().split())
    assert "None" not in text
    assert "--seqLength N time steps (default: 100)" in text
    assert "te, old, none or default (default: te)" in text
    assert "groups to run (default: ['cnns', 'rnns'])" in text


def test_without_flags_it_runs_the_old_two_groups():
    assert options() == {"variants": [*GROUPS["rnns"], *GROUPS["cnns"]]}
    assert request().remarks == ()


def test_every_size_has_its_old_flag():
    sizes = options(
        "--seqLength",
        "7",
        "--numLayers",
        "2",
        "--inputSize",
        "5",
        "--hiddenSize",
        "6",
        "--miniBatch",
        "3",
    )
    wanted = {"seq_length": 7, "num_layers": 2, "input_size": 5, "hidden_size": 6, "batch_size": 3}
    assert wanted.items() <= sizes.items()


def test_groups_and_their_variants():
    assert options("--group", "rnns", "--rnns", "jit", "py")["variants"] == ["jit", "py"]
    assert options("--group", "cnns")["variants"] == [*GROUPS["cnns"]]
    assert options("--group", "rnns", "--rnns")["variants"] == [*GROUPS["rnns"]], (
        "a bare flag is the group's own"
    )
    assert options("--group", "cnns", "--rnns", "jit")["variants"] == [*GROUPS["cnns"]], (
        "a group that isn't run has no variants"
    )
    assert options("--rnns", "jit_layernorm", "--group", "rnns")["variants"] == ["jit_layernorm"], (
        "any variant will do"
    )
    assert options("--group", "layernorm")["variants"] == [*GROUPS["layernorm"]]


@pytest.mark.parametrize("flag", ["--variable-lstms", "--variable_lstms"])
def test_variable_lengths_come_first(flag):
    assert options(flag, "--group", "rnns", "--rnns", "py")["variants"] == [
        *GROUPS["vl_lstm"],
        "py",
    ]
    assert options(flag, "--group")["variants"] == [*GROUPS["vl_lstm"]]


def test_knobs_of_torchscript():
    given = options(
        "--fuser",
        "old",
        "--executor",
        "legacy",
        "--cuda_pointwise_block_size",
        "128",
        "--cuda-pointwise-loop-level",
        "2",
    )
    wanted = {
        "fuser": "old",
        "executor": "legacy",
        "cuda_pointwise_block_size": 128,
        "cuda_pointwise_loop_level": 2,
    }
    assert wanted.items() <= given.items()


def test_rounds_are_shared_out_to_the_launches():
    run = request("--nloops", "100", "--launches", "2").config.run
    assert (run.launches, run.blocks) == (2, 25), "a block has two turns of each arm"
    assert run.sample_s < 1e-6, "each round is a sample of its own"
    assert request("--nloops", "1").config.run.blocks == 1


def test_without_a_number_of_rounds_the_times_decide():
    run = request().config.run
    assert (run.blocks, run.sample_s) == (
        fastrnns_flags.RunOptions().blocks,
        fastrnns_flags.RunOptions().sample_s,
    )


def test_devices():
    assert request("--device", "cuda:1").config.run.device == "cuda:1"
    assert request().config.run.device == "auto"


def test_what_the_old_tool_ignored_is_said():
    asked = request("--group", "cnns", "--seqLength", "50", "--cnns", "resnet18", "--fuser", "te")
    assert "seq_length" not in asked.config.entries[0].options
    assert asked.remarks == ("no chosen variant uses --seqLength, --fuser",)


def test_more_warm_up_than_there_always_is_is_said():
    assert request("--warmup", "10").remarks == ()
    (remark,) = request("--warmup", "50").remarks
    assert "until times are steady" in remark


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--seqLength", "-1"], "--seqLength: -1 is less than 1"),
        (["--miniBatch", "0"], "--miniBatch: 0 is less than 1"),
        (["--fuser", "nnc"], "--fuser: "),
        (["--device", "tpu"], "--device: "),
        (["--launches", "0"], "--launches: 0 is less than 1"),
        (["--nloops", "0"], "--nloops: 0 is less than 1"),
        (["--warmup", "-1"], "--warmup: -1 is less than 0"),
        (
            ["--rnns", "jit_premult", "--group", "rnns"],
            "--rnns: jit_premult is not known; did you mean 'jit_premul'?",
        ),
        (["--cnns", "resnet19"], "--cnns: resnet19 is not known; did you mean 'resnet18'?"),
        (["--group", "rnn"], "--group: rnn is not known; did you mean 'rnns'?"),
        (["--group"], "--group: no group is named"),
        (["--print-json", "yaml"], "--print-json: yaml is not known; oss and pep are"),
        (["--cuda-pointwise-block-size", "0"], "--cuda-pointwise-block-size: 0 is less than 1"),
        (["--compile-modes", "fast"], "--compile-modes: "),
    ],
)
def test_a_bad_value_is_named_by_its_flag(argv, complaint):
    assert complaint in refused(*argv)


def test_complaints_come_together():
    assert (
        len(refused("--seqLength", "-1", "--miniBatch", "0", "--dtype", "int8").splitlines()) == 3
    )


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--variable-lstms"],
        ["--compile-modes", "default"],
        ["--rnns", "jit_dropout", "--numLayers", "2"],
    ],
)
def test_what_the_flags_ask_for_can_be_planned(argv):
    cases = plan(request(*argv).config, ())
    assert len(cases) > 4


def test_what_is_printed_and_where(monkeypatch):
    for name in ("write_table", "write_oss", "write_pep"):
        written = type("Written", (), {"text": name})
        monkeypatch.setattr(formats, name, lambda results, *, written=written, **_: written)

    def printed(*argv):
        shown = fastrnns_flags.print_results(None, fastrnns_flags.read_flags(parse(*argv)))
        return shown.out, shown.err

    assert printed() == ("", "write_table")
    assert printed("--print-json") == ("write_oss", "")
    assert printed("--print-json", "pep") == ("write_pep", "")


def test_the_separator_reaches_the_table(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        formats,
        "write_table",
        lambda results, **more: seen.update(more) or type("Written", (), {"text": ""}),
    )
    fastrnns_flags.print_results(None, fastrnns_flags.read_flags(parse("--sep", ";")))
    assert seen == {"sep": ";"}


@pytest.mark.parametrize(
    "argv",
    [
        (),
        (
            "--seed",
            "0",
            "--dropout",
            "0",
            "--nloops",
            "8",
            "--warmup",
            "3",
            "--device",
            "cpu",
            "--threads",
            "1",
        ),
        (
            "--group",
            "rnns",
            "--rnns",
            "jit",
            "py",
            "--hiddenSize",
            "6",
            "--compile-modes",
            "default",
            "reduce-overhead",
        ),
        (
            "--group",
            "--variable_lstms",
            "--launches",
            "1",
            "--cuda_pointwise_loop_level",
            "2",
            "--fuser",
            "old",
        ),
        ("--cnns", "resnet18", "--imageSize", "64", "--dtype", "bfloat16"),
    ],
    ids=" ".join,
)
def test_what_is_said_to_measure_again_asks_for_the_same(argv):
    first = request(*argv)
    again = request(*first.again)
    assert (again.config, again.remarks, again.again) == (first.config, first.remarks, first.again)
    assert len(first.again) == len(argv), "what was left to its default stays so"


def test_every_flag_but_those_of_the_output_is_said_again():
    told = {*fastrnns_flags.OPTIONS, *fastrnns_flags.RUN_FLAGS}
    assert {*vars(parse())} - told == {"filter", "output", "sep", "print_json"}


def test_the_reproduce_line_has_the_flags_and_the_case(monkeypatch, tmp_path):
    lines = {}

    def measure(bench, _):
        lines.update({case.id: bench.again(case) for _, case in bench.plan})
        raise BadInput("enough")

    monkeypatch.setattr(Measurement, "measure", measure)
    flags = ["--group", "rnns", "--rnns", "jit", "--hiddenSize", "6"]
    assert (
        cli.main(["fastrnns", *flags, "--filter", "jit", "--sep", ",", "--output", str(tmp_path)])
        == 2
    )
    ((name, line),) = lines.items()
    program, command, *words = shlex.split(line)
    assert (program, command, words[-2:]) == ("ci-bench", "fastrnns", ["--filter", name])
    assert plan(request(*words).config, [name]) == plan(request(*flags).config, ["jit"])
