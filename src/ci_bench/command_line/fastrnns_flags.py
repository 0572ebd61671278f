"""`ci-bench fastrnns`: flags and output format of PyTorch's ``benchmarks/fastrnns/bench.py``. Pure.

Flags become a configuration of the suite `fastrnns`. Differences from the old tool: the device is
chosen if none is named, warm-up continues until the times are steady, rounds are distributed over
fresh processes, and without `--nloops` there are as many as the times need.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path
from typing import Any

from ci_bench.errors import BadInput
from ci_bench.records.config import Config, RunOptions, SuiteEntry
from ci_bench.records.results import Results
from ci_bench.suites.fastrnns.options import FastrnnsOptions, honoured
from ci_bench.suites.fastrnns.variants import GROUPS, VARIANTS, chosen

SUITE = "fastrnns"
OPTIONS = {
    "seq_length": "--seqLength",
    "num_layers": "--numLayers",
    "input_size": "--inputSize",
    "hidden_size": "--hiddenSize",
    "batch_size": "--miniBatch",
    "fuser": "--fuser",
    "executor": "--executor",
    "cuda_pointwise_loop_level": "--cuda-pointwise-loop-level",
    "cuda_pointwise_block_count": "--cuda-pointwise-block-count",
    "cuda_pointwise_block_size": "--cuda-pointwise-block-size",
    "seed": "--seed",
    "dtype": "--dtype",
    "dropout": "--dropout",
    "image_size": "--imageSize",
    "cnn_batch_size": "--cnnBatch",
    "compile_modes": "--compile-modes",
}
"""The flag of each option of an entry; the last six are new."""
RUN_FLAGS = {
    "warmup": "--warmup",
    "nloops": "--nloops",
    "device": "--device",
    "variable_lstms": "--variable-lstms",
    "rnns": "--rnns",
    "cnns": "--cnns",
    "group": "--group",
    "launches": "--launches",
    "threads": "--threads",
}
"""Flags for measuring that are not options of an entry, by their names in argparse's result."""
DEFAULTS: Mapping[str, Any] = {"device": "auto", "group": ["cnns", "rnns"], "launches": 3}
INTEGERS = (
    "seq_length",
    "num_layers",
    "input_size",
    "hidden_size",
    "batch_size",
    "seed",
    "image_size",
    "cnn_batch_size",
)
ONE_ROUND_S = 1e-9
"""The least duration of a sample where rounds are counted: a sample is then one round."""
STEADY_SAMPLES = 15
"""The fewest rounds of warm-up: steadiness is not detectable in fewer."""
VARIABLE = GROUPS["vl_lstm"]
DEFAULT_OUTPUT = Path("ci-bench-results")


@dataclass(frozen=True, kw_only=True, slots=True)
class FastrnnsRequest:
    """Request made by the flags."""

    config: Config
    """Configuration of the suite `fastrnns`."""
    remarks: tuple[str, ...]
    """Differences from the old tool, to print."""
    again: tuple[str, ...] = ()
    """Flags that repeat the measurement."""
    print_json: str | None = None
    """Form of the output, ``oss`` or ``pep``; `None` for the table."""
    sep: str = " "
    """Separator between the columns of the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """Text to print, and the stream for it."""

    out: str
    err: str


class _WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults; those of flags without one are the suite's, in their help."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def _default(option: str) -> str:
    """Return the suite's default of an option, as the end of a flag's help."""
    return next(
        (
            f" (default: {field.default})"
            for field in fields(FastrnnsOptions)
            if field.name == option
        ),
        "",
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the old flags under their old names, also with underscores, and a few new ones."""
    parser.formatter_class = _WithDefaults
    _add_rounds(parser)
    _add_variants(parser)
    _add_torchscript(parser)
    _add_new_flags(parser)


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    """Add the sizes, the numbers of rounds, and the device."""
    for option in INTEGERS:
        parser.add_argument(
            OPTIONS[option],
            dest=option,
            type=int,
            metavar="N",
            help=f"{SIZE_HELP[option]}{_default(option)}",
        )
    parser.add_argument(
        "--warmup",
        type=int,
        metavar="N",
        help="minimum rounds of warm-up; it continues until times are steady",
    )
    parser.add_argument(
        "--nloops", type=int, metavar="N", help="total timed rounds; as many as needed if omitted"
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        default=DEFAULTS["device"],
        help="cpu, cuda, cuda:N, or auto: the first GPU, else the CPU",
    )


def _add_variants(parser: argparse.ArgumentParser) -> None:
    variable = "also the variants for sequences of variable length, which take long"
    parser.add_argument("--variable-lstms", "--variable_lstms", action="store_true", help=variable)
    parser.add_argument(
        "--rnns",
        nargs="*",
        metavar="VARIANT",
        help="variants of the group rnns; the group's own if no names follow",
    )
    parser.add_argument(
        "--cnns",
        nargs="*",
        metavar="VARIANT",
        help="variants of the group cnns; the group's own if no names follow",
    )
    parser.add_argument(
        "--group", nargs="*", default=DEFAULTS["group"], metavar="GROUP", help="groups to run"
    )


def _add_torchscript(parser: argparse.ArgumentParser) -> None:
    """Add the settings of TorchScript, and the form of the output."""
    fuser, executor = (
        f"TorchScript {option}: {{}}{_default(option)}" for option in ("fuser", "executor")
    )
    parser.add_argument("--fuser", metavar="FUSER", help=fuser.format("te, old, none or default"))
    parser.add_argument(
        "--executor",
        metavar="EXECUTOR",
        help=executor.format("profiling, simple, legacy or default"),
    )
    for name in ("loop_level", "block_count", "block_size"):
        dashed = f"--cuda-pointwise-{name.replace('_', '-')}"
        parser.add_argument(
            dashed,
            f"--cuda_pointwise_{name}",
            type=int,
            metavar="N",
            help="for TorchScript's CUDA fuser",
        )
    parser.add_argument(
        "--sep", default=" ", metavar="TEXT", help="separator between the columns of the table"
    )
    parser.add_argument(
        "--print-json",
        nargs="?",
        const="oss",
        metavar="FORM",
        help="oss or pep instead of the table",
    )


def _add_new_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the old tool lacked."""
    parser.add_argument("--dtype", metavar="DTYPE", help="float32, float64, bfloat16 or float16")
    parser.add_argument(
        "--dropout", type=float, metavar="SHARE", help="dropout rate of the variants with dropout"
    )
    parser.add_argument(
        "--compile-modes",
        nargs="+",
        metavar="MODE",
        help="also the compiled form of each structure, in these modes",
    )
    parser.add_argument(
        "--launches",
        type=int,
        default=DEFAULTS["launches"],
        metavar="N",
        help="fresh process sets that share the rounds",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="torch's threads on the CPU")
    chosen = "only the case with the id TEXT, or else all whose id contains it"
    parser.add_argument("-k", "--filter", action="append", default=[], metavar="TEXT", help=chosen)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help="folder for the documents",
    )


SIZE_HELP = {
    "seq_length": "time steps",
    "num_layers": "layers",
    "input_size": "features of the input",
    "hidden_size": "features of the state",
    "batch_size": "rows of one step",
    "seed": "seed of weights, inputs and gradient",
    "image_size": "pixels",
    "cnn_batch_size": "images of one step",
}


def read_flags(arguments: argparse.Namespace) -> FastrnnsRequest:
    """Return the configuration that the flags describe.

    Raises:
        BadInput: a value is out of its range, or a name is unknown. All complaints come
        together, by flag.
    """
    import msgspec

    complaints = [*_unknown(arguments)]
    if not complaints:
        entry = _entry(arguments)
        run = _run(arguments)
        complaints = list(
            _complaints({"schema_version": 1, "run": run, "suites": {SUITE: [entry]}})
        )
    if complaints:
        raise BadInput("\n".join(complaints))
    config = Config(
        entries=(SuiteEntry(suite=SUITE, options=entry),), run=msgspec.convert(run, RunOptions)
    )
    remarks = tuple(_remarks(arguments, entry))
    again = tuple(_again(arguments))
    return FastrnnsRequest(
        config=config,
        remarks=remarks,
        again=again,
        print_json=arguments.print_json,
        sep=arguments.sep,
    )


def print_results(results: Results, request: FastrnnsRequest) -> Printed:
    """Return the output: the old tool's table on stderr, or the requested JSON on stdout."""
    from ci_bench.formats.fastrnns import write_oss, write_pep, write_table

    if request.print_json == "pep":
        return Printed(out=write_pep(results).text, err="")
    if request.print_json:
        return Printed(out=write_oss(results).text, err="")
    return Printed(out="", err=write_table(results, sep=request.sep).text)


def _variants(arguments: argparse.Namespace) -> tuple[str, ...]:
    """List the variants that the old tool would run, in its order.

    That is variable lengths, recurrent, convolutional, then this tool's groups.
    """
    names = VARIABLE if arguments.variable_lstms else ()
    for group in dict.fromkeys(("rnns", "cnns", *arguments.group)):
        if group in arguments.group:
            selected = getattr(arguments, group, None)
            names = (*names, *(selected or GROUPS[group]))
    return tuple(dict.fromkeys(names))


def _entry(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given options that some variant uses.

    The old tool silently ignored all others.
    """
    names = _variants(arguments)
    heeded = {option for variant in chosen((), names) for option in honoured(variant)} | {
        "compile_modes"
    }
    options = {
        option: getattr(arguments, option)
        for option in OPTIONS
        if getattr(arguments, option) not in (None, [])
    }
    return {
        "variants": list(names),
        **{option: value for option, value in options.items() if option in heeded},
    }


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    run = {"device": arguments.device, "launches": arguments.launches, "threads": arguments.threads}
    if arguments.nloops is not None:
        # A block has two turns of each arm.
        run |= {
            "blocks": ceil(arguments.nloops / (2 * max(1, arguments.launches))),
            "sample_s": ONE_ROUND_S,
            "sampling": "fixed",
        }
    return run


def _again(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the given flags, except those that choose cases or the form of the output."""
    for name, flag in {**RUN_FLAGS, **OPTIONS}.items():
        value, default = getattr(arguments, name), DEFAULTS.get(name)
        if value is None or value is False or value == default:
            continue
        yield flag
        if isinstance(value, list):
            yield from map(str, value)
        elif value is not True:
            yield str(value)


def _unknown(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield names that do not exist, and counts that the schema never sees."""
    from ci_bench.records.spelling import nearest

    for flag, names, choices in (
        ("--group", arguments.group, GROUPS),
        ("--rnns", arguments.rnns or (), VARIANTS),
        ("--cnns", arguments.cnns or (), VARIANTS),
    ):
        yield from (
            f"{flag}: {name} is not known{nearest(name, tuple(choices))}"
            for name in names
            if name not in choices
        )
    if not arguments.group and not arguments.variable_lstms:
        yield (
            "--group: no group is named, so there is nothing to run; name one, or leave the"
            " flag out"
        )
    if arguments.print_json not in {None, "oss", "pep"}:
        yield f"--print-json: {arguments.print_json} is not known; oss and pep are"
    for flag, value, least in (
        ("--nloops", arguments.nloops, 1),
        ("--warmup", arguments.warmup, 0),
    ):
        if value is not None and value < least:
            yield f"{flag}: {value} is less than {least}"


def _complaints(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the configuration's faults, each by the flag of its field."""
    from ci_bench.records.documents import Kind, validate
    from ci_bench.records.faults import Fault

    for fault in validate(raw, Kind.CONFIG):
        field = fault.path.removeprefix(f"$.suites.{SUITE}[0].").removeprefix("$.run.")
        flag = OPTIONS.get(field.partition("[")[0], f"--{field}")
        yield str(Fault(flag, fault.message))


def _remarks(arguments: argparse.Namespace, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield remarks that the old tool did not print."""
    ignored = [
        OPTIONS[name]
        for name in OPTIONS
        if getattr(arguments, name) not in (None, []) and name not in entry
    ]
    if ignored:
        yield f"no chosen variant uses {', '.join(ignored)}"
    if (arguments.warmup or 0) > STEADY_SAMPLES:
        yield (
            f"--warmup {arguments.warmup}: warm-up continues until times are steady, for at least"
            f" {STEADY_SAMPLES} rounds"
        )
