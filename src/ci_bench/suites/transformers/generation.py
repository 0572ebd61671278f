"""A greedy generation, in two phases that are timed: the prompt up to the first token, and each token after it.

The loop is written out around the model's own forward pass: `model.generate` adds stopping rules, samplers and streamers, which
are not the model. Its tokens are those of `model.generate(do_sample=False)`. A candidate compiles the pass that decodes, as
`generate` does; the prompt is processed eagerly in every arm unless the candidate is `whole`.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ci_bench.records.results import Check
from ci_bench.suites.base import Mark, Part, Unsupported
from ci_bench.suites.freshness import State, read_state, write_state
from ci_bench.suites.transformers import FIRST_TOKEN, TOKEN
from ci_bench.suites.transformers.agreement import Observation
from ci_bench.suites.transformers.inputs import Batch, arguments_of, described
from ci_bench.suites.transformers.options import TIMED_AGREES, CacheKind, Options
from ci_bench.suites.transformers.parts import Parts
from ci_bench.suites.transformers.steps import check, nothing
from ci_bench.suites.transformers.translate import forward_of, has_cuda_graphs

Choose = Callable[[int, Tensor], Tensor]
"""From the number of a token (from 0) and its logits [batch, 1, vocabulary] to the token, int64 [batch, 1]."""
Tokens = tuple[Tensor, ...]
"""The tokens of a batch of rows, one after another, each int64 [batch, 1]."""
Script = tuple[Tokens, ...]
"""Tokens to take instead of one's own, for each observed generation."""


def greedy(_: int, logits: Tensor) -> Tensor:
    """The likeliest token."""
    return logits[:, -1:].argmax(dim=-1)


class Generation:
    """A generation of `new_tokens` for a batch of prompts, again and again."""

    learns = False
    unrefereed = ""
    memory = 0.0

    def __init__(self, parts: Parts, script: Script | None = None) -> None:
        """`items` are tokens. `script` makes `observe` compare logits after the same tokens."""
        options = parts.recipe.options
        self.items: int | None = options.batch_size * options.new_tokens
        self.parts: tuple[Part, ...] = (
            Part(metric=FIRST_TOKEN.name, items=options.batch_size),
            Part(metric=TOKEN.name, per=options.new_tokens - 1, items=options.batch_size),
        )
        self.compiler = parts.compiler
        self.model: Any = parts.model
        self.inputs = described(parts.batches[0])
        self.script: Script = script or ()
        self.observed: Script = ()
        self._tokens: Tokens = ()
        self._parts = parts
        self._options = options
        self.epsilon = options.precision.epsilon
        self._feed = parts.feed
        self._batch: Batch = {}
        self._autocast = parts.autocast
        self._decode = forward_of(parts.candidate, parts.model, {"use_cache": True})
        whole = parts.candidate is not None and parts.candidate.whole
        prefill = self._decode if whole else partial(parts.model, use_cache=True)
        self._prefill = partial(prefill, **last_logits_only(parts.model))
        self._keep_encoded = whole and has_cuda_graphs(parts.candidate)
        self._static = static_cache(self.model, options) if options.cache is CacheKind.STATIC else None

    def step(self, mark: Mark) -> None:
        """One generation for the next prompts."""
        self._batch = next(self._feed.following)
        self._tokens = self._generate(self._prefill, self._decode, self._batch, mark, greedy)

    def _generate(
        self, prefill: Callable[..., Any], decode: Callable[..., Any], batch: Batch, mark: Mark, choose: Choose
    ) -> Tokens:
        """Prefill, mark, decode, mark. A static cache is emptied, and a dynamic one made, before the prompt."""
        with torch.no_grad(), self._autocast():
            cache = self._empty_cache()
            place, more = (
                ("input_ids", {}) if not self.model.config.is_encoder_decoder else ("decoder_input_ids", self._start(batch))
            )
            output = prefill(**batch, **more, past_key_values=cache)
            encoded = self._encoded(output)
            tokens = [choose(0, output.logits)]
            mark()
            for number in range(1, self._options.new_tokens):
                output = decode(**{place: tokens[-1]}, **encoded, past_key_values=cache)
                tokens.append(choose(number, output.logits))
            mark()
        return tuple(tokens)

    def _empty_cache(self) -> Any:
        if self._static is None:
            return dynamic_cache(self.model)
        self._static.reset()
        return self._static

    def _start(self, batch: Batch) -> dict[str, Tensor]:
        """The decoder's first id, for every row."""
        config = self.model.config
        first = config.decoder_start_token_id if config.decoder_start_token_id is not None else config.bos_token_id
        rows = next(iter(batch.values()))
        return {"decoder_input_ids": torch.full((len(rows), 1), first or 0, dtype=torch.int64, device=rows.device)}

    def _encoded(self, output: Any) -> dict[str, tuple[Tensor, ...]]:
        """What the encoder made of the prompt. A copy, where the next call would overwrite it."""
        if not self.model.config.is_encoder_decoder:
            return {}
        states = output.encoder_last_hidden_state
        return {"encoder_outputs": (states.clone() if self._keep_encoded else states,)}

    def observe(self, *, lightly: bool = False) -> Observation:  # noqa: ARG002 - logits of single tokens are small
        """The logits of every token of the next prompts, after the script's tokens where there is one."""
        self._batch = next(self._feed.following)
        seen: dict[str, Tensor] = {}
        given = self.script[len(self.observed)] if self.script else None

        def choose(number: int, logits: Tensor) -> Tensor:
            seen[f"logits: token {number}"] = logits[:, -1:].detach().cpu().clone()
            return given[number] if given else greedy(number, logits)

        self._tokens = self._generate(self._prefill, self._decode, self._batch, nothing, choose)
        self.observed = (*self.observed, self._tokens)
        return Observation(values=seen)

    def finish(self) -> tuple[Check, ...]:
        """Every token of the last timed generation is the likeliest by the model itself, but for rounding."""
        arm, limit = self._parts.arm, math.sqrt(self.epsilon)
        gaps, finite = self._scored()
        checks = (check("finite_output", arm, passed=finite, detail=f"logits of {len(gaps)} tokens"),)
        if self._parts.candidate is None:
            return checks
        worst = float(gaps.max())
        told = f"the timed tokens are the model's own likeliest within {worst:.2g} of the logits' size (limit {limit:.2g})"
        return (*checks, check(TIMED_AGREES, arm, passed=worst <= limit, detail=told))

    def _scored(self) -> tuple[Tensor, bool]:
        """How far each token of the last generation is from the model's own likeliest, fp32 [tokens, batch]; are all finite?

        By the model as it is, uncompiled, after the same tokens; in units of the logits' root mean square.
        """
        gaps, finite = [], []

        def choose(number: int, logits: Tensor) -> Tensor:
            row = logits[:, -1].float()
            token = self._tokens[number]
            size = row.square().mean().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
            gaps.append((row.amax(dim=-1) - row.gather(-1, token)[:, 0]) / size)
            finite.append(bool(torch.isfinite(row).all()))
            return token

        own = partial(self.model, use_cache=True)
        self._generate(partial(own, **last_logits_only(self.model)), own, self._batch, nothing, choose)
        return torch.stack(gaps), all(finite)

    def remember(self) -> None:
        """Nothing: prompts are drawn, and no generation changes the weights."""

    def state(self) -> State:
        """The weights and buffers, on the host."""
        return read_state(self.model)

    def refresh(self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0) -> bool:
        """Take prompts drawn from another seed from now on."""
        if state is not None:
            write_state(state, self.model)
        return self._feed.refresh(seed, None if moved else self._batch, shaken)

    def outputs(self) -> State:
        """Whether each token is the model's own likeliest after those before it, up to rounding; bool [tokens, batch].

        Tokens cannot be held against another arm's: where two are as likely, rounding chooses, and all after it differ.
        """
        gaps, _ = self._scored()
        return {"outputs.likeliest": gaps <= math.sqrt(self.epsilon)}

    def resume(self) -> None:
        """Back to the prepared prompts."""
        self._feed.resume()


def require_generation(model: Any, options: Options) -> None:
    """Raise `Unsupported` where a model cannot generate, or not in this way."""
    name = type(model).__name__
    if not model.can_generate():
        raise Unsupported(f"{name} does not generate; mode generation needs a decoder with a language head")
    if not {"past_key_values", "use_cache"} <= set(arguments_of(model)):
        raise Unsupported(f"{name} keeps its state elsewhere than in past_key_values, which this suite does not drive")
    if options.cache is CacheKind.STATIC and not getattr(model, "_can_compile_fullgraph", True):
        raise Unsupported(f"{name} has no static cache")


def last_logits_only(model: Any) -> dict[str, int]:
    """Where a model can leave out the logits of the prompt, which nobody reads, it does."""
    return {"logits_to_keep": 1} if "logits_to_keep" in arguments_of(model) else {}


def dynamic_cache(model: Any) -> Any:
    """An empty cache that grows."""
    from transformers import DynamicCache, EncoderDecoderCache

    own = DynamicCache(config=model.config)
    return EncoderDecoderCache(own, DynamicCache(config=model.config)) if model.config.is_encoder_decoder else own


def static_cache(model: Any, options: Options) -> Any:
    """An empty cache of full length: the prompt and all new tokens, or the encoder's states and all new tokens."""
    from transformers import EncoderDecoderCache, StaticCache

    length = options.sequence_length or 1
    if not model.config.is_encoder_decoder:
        return StaticCache(config=model.config, max_cache_len=length + options.new_tokens)
    encoded = getattr(model.config, "max_source_positions", length)
    own = StaticCache(config=model.config, max_cache_len=options.new_tokens + 1)
    return EncoderDecoderCache(own, StaticCache(config=model.config, max_cache_len=encoded))
