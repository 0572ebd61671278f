"""Every variant by name: its task, its structure, its form. No torch here.

A task is the computed function, so variants of one task can be compared. A structure is the way in
which the computation is written; a form is the tool that runs it. The names of the original tool
(`GROUPS` of the first three) are kept, all others follow their pattern.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class FastrnnsTask(StrEnum):
    """Computed functions.

    Variants of one task start from the same bytes and share one reference.
    """

    SEQUENCE = "sequence"
    """An LSTM over the whole sequence; the gradient comes from every step."""
    LAST_STATE = "last_state"
    """An LSTM of which only the last hidden state is kept; the gradient comes from it alone."""
    LAYERNORM = "layernorm"
    DROPOUT = "dropout"
    VARIABLE_LENGTH = "variable_length"
    BIDIRECTIONAL = "bidirectional"
    MILSTM = "milstm"
    GRU = "gru"
    RNN_RELU = "rnn_relu"
    RNN_TANH = "rnn_tanh"
    RESNET18 = "resnet18"
    RESNET50 = "resnet50"


class Form(StrEnum):
    """Forms in which a structure runs."""

    LIBRARY = "library"
    """torch.nn with cuDNN, so only on a GPU."""
    ATEN = "aten"
    """torch.nn without cuDNN: torch's own kernels, on the CPU oneDNN's where torch takes them."""
    EAGER = "eager"
    SCRIPT = "script"
    TRACE = "trace"
    COMPILE = "compile"

    @property
    def is_torchscript(self) -> bool:
        """True if fuser and executor of TorchScript matter."""
        return self in {Form.SCRIPT, Form.TRACE}

    @property
    def is_translated(self) -> bool:
        """True if something other than Python's interpreter runs it in the end."""
        return self in {Form.SCRIPT, Form.TRACE, Form.COMPILE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One entry of the table."""

    name: str
    """Name of the variant, which is also that of its arm."""
    task: FastrnnsTask
    """The computed function."""
    structure: str
    """Name of the way in which the computation is written; ``library`` is torch.nn's module."""
    form: Form
    """The tool that runs the structure."""
    forward_only: bool = False
    """True if backward is negligible, so it is not measured."""

    @property
    def is_convolutional(self) -> bool:
        """True for variants that take images, not sequences."""
        return self.task in {FastrnnsTask.RESNET18, FastrnnsTask.RESNET50}


REFERENCES: Mapping[FastrnnsTask, str] = {
    FastrnnsTask.SEQUENCE: "aten",
    FastrnnsTask.LAST_STATE: "aten_simple",
    FastrnnsTask.LAYERNORM: "py_layernorm",
    FastrnnsTask.DROPOUT: "aten_dropout",
    FastrnnsTask.VARIABLE_LENGTH: "vl_aten",
    FastrnnsTask.BIDIRECTIONAL: "aten_bidirectional",
    FastrnnsTask.MILSTM: "py_milstm",
    FastrnnsTask.GRU: "aten_gru",
    FastrnnsTask.RNN_RELU: "aten_rnn_relu",
    FastrnnsTask.RNN_TANH: "aten_rnn_tanh",
    FastrnnsTask.RESNET18: "resnet18",
    FastrnnsTask.RESNET50: "resnet50",
}
"""The reference arm of every case of a task: torch's own library without cuDNN, which every machine
has, or the eager form.
"""

HAND_WRITTEN = {Form.EAGER: "py", Form.SCRIPT: "jit", Form.COMPILE: "compile"}


def _hand_written(
    structure: str, task: FastrnnsTask, *, suffix: str | None = None
) -> tuple[Variant, ...]:
    """Return the eager, the scripted and the compiled form.

    `suffix` follows ``py``, ``jit`` and ``compile`` in the names.
    """
    tail = f"_{structure}" if suffix is None else suffix
    return tuple(
        Variant(name=f"{prefix}{tail}", task=task, structure=structure, form=form)
        for form, prefix in HAND_WRITTEN.items()
    )


def _library(task: FastrnnsTask) -> tuple[Variant, ...]:
    """Return torch.nn's module for a task, with cuDNN and without."""
    return (
        Variant(name=f"cudnn_{task}", task=task, structure="library", form=Form.LIBRARY),
        Variant(name=f"aten_{task}", task=task, structure="library", form=Form.ATEN),
    )


def _convolutional(task: FastrnnsTask) -> tuple[Variant, ...]:
    forms = {Form.EAGER: "", Form.TRACE: "_jit", Form.COMPILE: "_compile"}
    return tuple(
        Variant(name=f"{task}{tail}", task=task, structure=str(task), form=form)
        for form, tail in forms.items()
    )


def _sequence_variants() -> tuple[Variant, ...]:
    """Return the variants of a common LSTM, over the whole sequence or for its last state."""
    return (
        Variant(name="cudnn", task=FastrnnsTask.SEQUENCE, structure="library", form=Form.LIBRARY),
        Variant(name="aten", task=FastrnnsTask.SEQUENCE, structure="library", form=Form.ATEN),
        Variant(
            name="compile_lstm", task=FastrnnsTask.SEQUENCE, structure="library", form=Form.COMPILE
        ),
        *_hand_written("loop", FastrnnsTask.SEQUENCE, suffix=""),
        *_hand_written("premul", FastrnnsTask.SEQUENCE),
        *_hand_written("premul_bias", FastrnnsTask.SEQUENCE),
        *_hand_written("multilayer", FastrnnsTask.SEQUENCE),
        Variant(
            name="compile_scan", task=FastrnnsTask.SEQUENCE, structure="scan", form=Form.COMPILE
        ),
        Variant(
            name="compile_while_loop",
            task=FastrnnsTask.SEQUENCE,
            structure="while_loop",
            form=Form.COMPILE,
        ),
        Variant(
            name="cudnn_simple",
            task=FastrnnsTask.LAST_STATE,
            structure="library",
            form=Form.LIBRARY,
        ),
        Variant(
            name="aten_simple", task=FastrnnsTask.LAST_STATE, structure="library", form=Form.ATEN
        ),
        *_hand_written("simple", FastrnnsTask.LAST_STATE),
    )


def _all_variants() -> tuple[Variant, ...]:
    layernorm = Variant(
        name="cudnn_layernorm",
        task=FastrnnsTask.LAYERNORM,
        structure="library_layernorm",
        form=Form.LIBRARY,
        forward_only=True,
    )
    variable = {
        Form.LIBRARY: "vl_cudnn",
        Form.ATEN: "vl_aten",
        Form.EAGER: "vl_py",
        Form.SCRIPT: "vl_jit",
    }
    return (
        *_sequence_variants(),
        layernorm,
        Variant(
            name="aten_layernorm",
            task=FastrnnsTask.LAYERNORM,
            structure="library_layernorm",
            form=Form.ATEN,
            forward_only=True,
        ),
        *_hand_written("layernorm", FastrnnsTask.LAYERNORM),
        *_hand_written("layernorm_decom", FastrnnsTask.LAYERNORM),
        *_library(FastrnnsTask.DROPOUT),
        *_hand_written("dropout", FastrnnsTask.DROPOUT),
        *(
            Variant(name=name, task=FastrnnsTask.VARIABLE_LENGTH, structure=_of(form), form=form)
            for form, name in variable.items()
        ),
        Variant(
            name="vl_compile",
            task=FastrnnsTask.VARIABLE_LENGTH,
            structure="variable_length",
            form=Form.COMPILE,
        ),
        *_library(FastrnnsTask.BIDIRECTIONAL),
        *_hand_written("bidirectional", FastrnnsTask.BIDIRECTIONAL),
        *_hand_written("milstm", FastrnnsTask.MILSTM),
        *(
            variant
            for task in (FastrnnsTask.GRU, FastrnnsTask.RNN_RELU, FastrnnsTask.RNN_TANH)
            for variant in (*_library(task), *_hand_written(str(task), task))
        ),
        *_convolutional(FastrnnsTask.RESNET18),
        *_convolutional(FastrnnsTask.RESNET50),
    )


def _of(form: Form) -> str:
    return "library" if form in {Form.LIBRARY, Form.ATEN} else "variable_length"


VARIANTS: Mapping[str, Variant] = {variant.name: variant for variant in _all_variants()}

GROUPS: Mapping[str, tuple[str, ...]] = {
    "cnns": ("resnet18", "resnet18_jit", "resnet50", "resnet50_jit"),
    "rnns": (
        "cudnn",
        "aten",
        "jit",
        "jit_premul",
        "jit_premul_bias",
        "jit_simple",
        "jit_multilayer",
        "py",
    ),
    "vl_lstm": ("vl_cudnn", "vl_jit", "vl_py"),
    "layernorm": ("cudnn_layernorm", "jit_layernorm", "jit_layernorm_decom"),
    "dropout": ("cudnn_dropout", "jit_dropout"),
    "cells": ("jit_milstm", "jit_gru", "jit_rnn_relu", "jit_rnn_tanh"),
    "bidirectional": ("cudnn_bidirectional", "jit_bidirectional"),
    "higher_order": ("compile_scan", "compile_while_loop"),
}
"""The first three are the original tool's, with its variants in its order."""


def reference_of(variant: Variant) -> Variant:
    """Return the arm that a variant's speedup is over."""
    return VARIANTS[REFERENCES[variant.task]]


def compiled_form(variant: Variant) -> Variant:
    """Return the variant that compiles the same structure.

    For a structure that only the library has, it is the library's.
    """
    same = (
        candidate
        for candidate in VARIANTS.values()
        if candidate.form is Form.COMPILE and candidate.task is variant.task
    )
    ranked = sorted(same, key=lambda candidate: candidate.structure != variant.structure)
    return ranked[0]


def chosen(groups: Iterable[str], names: Iterable[str]) -> tuple[Variant, ...]:
    """Return the variants of the groups, then those of `names`, each once."""
    every = [name for group in groups for name in GROUPS[group]] + list(names)
    return tuple(VARIANTS[name] for name in dict.fromkeys(every))
