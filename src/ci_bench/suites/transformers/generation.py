"""A generation in two timed phases: the prompt up to the first token, and each token after it.

The usual loop is written out around the model's own forward pass: `model.generate` adds stopping
rules, samplers and streamers, which are not the model. Its tokens are those of `model.generate`,
which may be asked for itself. A candidate compiles the pass that decodes, as `generate` does; the
prompt is processed eagerly in every arm unless the candidate is `whole`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from ci_bench.records.results import Check
from ci_bench.suites.contract import Mark, Part, Unsupported
from ci_bench.suites.shared.worker.freshness import State, read_state, write_state
from ci_bench.suites.transformers import FIRST_TOKEN, TOKEN
from ci_bench.suites.transformers.agreement import OutputObservation
from ci_bench.suites.transformers.inputs import PADDING, Batch, arguments_of
from ci_bench.suites.transformers.options import TIMED_AGREES, CacheKind, Loop, TransformersOptions
from ci_bench.suites.transformers.parts import Fed, Parts
from ci_bench.suites.transformers.sampling import draw, gap, generator_of, noise, seed_of
from ci_bench.suites.transformers.steps import check, nothing
from ci_bench.suites.transformers.translate import forward_of, has_cuda_graphs

SHOWN_ROWS = 5
Choose = Callable[[int, Tensor], Tensor]
"""From the number of a token (from 0) and its logits [batch, 1, vocabulary] to the token, int64
[batch, 1].
"""
Tokens = tuple[Tensor, ...]
"""The tokens of a batch of rows, one after another, each int64 [batch, 1]."""
Script = tuple[Tokens, ...]
"""Tokens to take instead of the model's own, for each observed generation."""


def greedy(_: int, logits: Tensor) -> Tensor:
    """Return the likeliest token."""
    return logits[:, -1:].argmax(dim=-1)


class Generation(Fed):
    """A generation of `new_tokens` for a batch of prompts, again and again."""

    learns = False
    unrefereed = ""
    memory = 0.0

    def __init__(self, parts: Parts, script: Script | None = None) -> None:
        """Set up a generation.

        `items` are tokens. `script` makes `observe` compare logits after the same tokens.
        """
        super().__init__(parts)
        options = parts.recipe.options
        self.items: int | None = options.batch_size * options.new_tokens
        self.parts: tuple[Part, ...] = (
            Part(metric=FIRST_TOKEN.name, items=options.batch_size),
            Part(metric=TOKEN.name, per=options.new_tokens - 1, items=options.batch_size),
        )
        self.script: Script = script or ()
        self.observed: Script = ()
        self._tokens: Tokens = ()
        self._calls = 0
        self._options = options
        self._decode = forward_of(parts.candidate, parts.model, {"use_cache": True})
        compiles_prompt = parts.candidate is not None and parts.candidate.whole
        prefill = self._decode if compiles_prompt else partial(parts.model, use_cache=True)
        self._prefill = partial(prefill, **last_logits_only(parts.model))
        self._keep_encoded = compiles_prompt and has_cuda_graphs(parts.candidate)
        self._static = (
            static_cache(self.model, options) if options.cache is CacheKind.STATIC else None
        )
        self._generate_of: ByGenerate | None = None
        if options.loop is Loop.GENERATE and not parts.recipe.exact:
            decode = None if parts.candidate is None else self._decode
            self._generate_of = ByGenerate(
                self.model, options, decode, compiles_prompt=compiles_prompt, first=self._first
            )

    def step(self, mark: Mark) -> None:
        """Run one generation for the next prompts.

        Each draws other random numbers than the one before, the same in every arm.
        """
        self._batch = next(self._feed.following)
        self._calls += 1
        if self._generate_of is not None:
            self._tokens = self._by_generate(self._generate_of, mark)
        else:
            self._tokens = self._generate(
                self._prefill, self._decode, self._batch, mark, self._drawing()
            )

    def _by_generate(self, generate: "ByGenerate", mark: Mark, **looks: Any) -> Tokens:
        """Run `generate` on the batch.

        It draws from torch's own generator, which is seeded for each generation.
        """
        with torch.no_grad(), self._autocast():
            torch.manual_seed(seed_of(self._options.seed, self._calls))
            return generate(
                self._batch, self._start(self._batch), self._empty_cache(), mark, **looks
            )

    def _drawing(self) -> Choose:
        """Return the way in which the timed loop takes a token."""
        sampling, device = self._options.sampling, self._parts.recipe.device
        if sampling is None:
            return greedy
        generator = generator_of(self._options.seed, self._calls, device)
        return lambda _, logits: draw(logits[:, -1], sampling, generator)

    def _generate(
        self,
        prefill: Callable[..., Any],
        decode: Callable[..., Any],
        batch: Batch,
        mark: Mark,
        choose: Choose,
        *,
        cache: Any = None,
    ) -> Tokens:
        """Prefill, mark, decode, mark.

        A static cache is emptied, and a dynamic one made, before the prompt.
        """
        with torch.no_grad(), self._autocast():
            cache = self._empty_cache() if cache is None else cache
            place = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
            padding = (
                Padding(self.model, batch, self._options) if "attention_mask" in batch else None
            )
            output = prefill(
                **batch,
                **self._start(batch),
                **({} if padding is None else padding.prompt),
                past_key_values=cache,
            )
            encoded = self._encoded(output)
            tokens = [choose(0, output.logits)]
            mark()
            for number in range(1, self._options.new_tokens):
                where = {} if padding is None else padding.token(number)
                output = decode(**{place: tokens[-1]}, **encoded, **where, past_key_values=cache)
                tokens.append(choose(number, output.logits))
            mark()
        return tuple(tokens)

    def _empty_cache(self) -> Any:
        if self._static is None:
            return dynamic_cache(self.model)
        self._static.reset()
        return self._static

    @property
    def _first(self) -> int:
        """The first id of a separate decoder."""
        config = self.model.config
        start_id = getattr(config, "decoder_start_token_id", None)
        return start_id if start_id is not None else getattr(config, "bos_token_id", None) or 0

    def _start(self, batch: Batch) -> dict[str, Tensor]:
        """Return the decoder's first id, for every row; empty without a separate decoder."""
        if not self.model.config.is_encoder_decoder:
            return {}
        rows = next(iter(batch.values()))
        return {
            "decoder_input_ids": torch.full(
                (len(rows), 1), self._first, dtype=torch.int64, device=rows.device
            )
        }

    def _encoded(self, output: Any) -> dict[str, tuple[Tensor, ...]]:
        """Return the encoder's output for the prompt.

        It is a copy, if the next call would overwrite it.
        """
        if not self.model.config.is_encoder_decoder:
            return {}
        states = output.encoder_last_hidden_state
        return {"encoder_outputs": (states.clone() if self._keep_encoded else states,)}

    def observe(self, *, lightly: bool = False) -> OutputObservation:  # noqa: ARG002 - logits of single tokens are small
        """Return the logits of every token of the next prompts.

        If there is a script, they are those after its tokens.

        The reference in fp64 goes through ragged prompts row by row, each without padding: nothing
        can leak there.
        """
        self._batch = next(self._feed.following)
        self._calls += 1
        all_logits: dict[str, Tensor] = {}
        script_tokens = self.script[len(self.observed) % len(self.script)] if self.script else None
        if self._generate_of is not None:
            self._tokens = self._by_generate(
                self._generate_of, nothing, all_logits=all_logits, script_tokens=script_tokens
            )
        else:
            next_token = self._drawing()

            def choose(number: int, logits: Tensor) -> Tensor:
                all_logits[f"logits: token {number}"] = logits[:, -1:].detach().cpu().clone()
                return script_tokens[number] if script_tokens else next_token(number, logits)

            by_row = self._options.ragged and self._parts.recipe.exact
            run = self._row_by_row if by_row else self._generate
            self._tokens = run(self._prefill, self._decode, self._batch, nothing, choose)
        self.observed = (*self.observed, self._tokens)
        return OutputObservation(values=all_logits)

    def _row_by_row(
        self,
        prefill: Callable[..., Any],
        decode: Callable[..., Any],
        batch: Batch,
        _: Mark,
        choose: Choose,
    ) -> Tokens:
        """Run each prompt separately, without padding, in step.

        `choose` sees the logits of a whole batch.
        """
        caches = [dynamic_cache(self.model) for _ in range(len(batch["input_ids"]))]
        lengths = batch["attention_mask"].sum(dim=1).tolist()
        with torch.no_grad(), self._autocast():
            rows = [
                prefill(
                    input_ids=batch["input_ids"][row : row + 1, -length:],
                    past_key_values=caches[row],
                ).logits[:, -1:]
                for row, length in enumerate(lengths)
            ]
            tokens = [choose(0, torch.cat(rows))]
            for number in range(1, self._options.new_tokens):
                last = tokens[-1]
                rows = [
                    decode(input_ids=last[row : row + 1], past_key_values=cache).logits
                    for row, cache in enumerate(caches)
                ]
                tokens.append(choose(number, torch.cat(rows)))
        return tuple(tokens)

    def finish(self) -> tuple[Check, ...]:
        """Check that each token of the last timed generation is the model's own, up to rounding."""
        arm, limit, options = self._parts.arm, math.sqrt(self.epsilon), self._options
        gaps, finite = self._scored()
        checks = (
            check("finite_output", arm, passed=finite, detail=f"logits of {len(gaps)} tokens"),
        )
        is_scored_loop = (
            options.loop is Loop.OWN and options.sampling is None and not options.ragged
        )
        if self._parts.candidate is None and is_scored_loop:
            return checks  # what scores is what was timed
        worst = float(gaps.max())
        which = (
            "own likeliest" if options.sampling is None else "own choice by the same random numbers"
        )
        alone = ", each prompt separately and unpadded" if options.ragged else ""
        detail = (
            f"the timed tokens are the model's {which}{alone} within {worst:.2g} of the logits'"
            f" size (limit {limit:.2g})"
        )
        if options.ragged and not worst <= limit:
            rows = (~(gaps.amax(dim=0) <= limit)).nonzero()[:SHOWN_ROWS, 0].tolist()
            detail = f"{detail}; rows that are not: {', '.join(map(str, rows))}"
        return (*checks, check(TIMED_AGREES, arm, passed=worst <= limit, detail=detail))

    def _scored(self) -> tuple[Tensor, bool]:
        """Measure each token's distance from the model's own, and check that all logits are finite.

        The distances are fp32 [tokens, batch], for the tokens of the last generation. The model
        runs uncompiled, after the same tokens, ragged prompts row by row. The unit is the logits'
        root mean square. A drawn token is compared with the one that the same random numbers draw
        from the model's own logits.
        """
        gaps, finite, options, sampling = [], [], self._options, self._options.sampling
        generator = generator_of(options.seed, self._calls, self._parts.recipe.device)

        def choose(number: int, logits: Tensor) -> Tensor:
            row = logits[:, -1].float()
            token = self._tokens[number]
            size = row.square().mean().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
            if sampling is None:
                distance = row.amax(dim=-1) - row.gather(-1, token)[:, 0]
            else:
                distance = gap(
                    row, noise(row, generator), token, sampling, slack=math.sqrt(self.epsilon)
                )
            gaps.append(distance / size)
            finite.append(bool(torch.isfinite(row).all()))
            return token

        eager = partial(self.model, use_cache=True)
        run = self._row_by_row if options.ragged else self._generate
        run(partial(eager, **last_logits_only(self.model)), eager, self._batch, nothing, choose)
        return torch.stack(gaps), all(finite)

    def state(self) -> State:
        """Return the weights and buffers, on the host."""
        return read_state(self.model)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take prompts drawn from another seed from now on."""
        if state is not None:
            write_state(state, self.model)
        return self._feed.refresh(seed, None if moved else self._batch, shaken)

    def results(self) -> State:
        """Return nothing: if two tokens are as likely, rounding chooses."""
        return {}

    def outputs(self) -> State:
        """Check that each token is the model's own after those before it, up to rounding.

        Bool [tokens, batch]. Tokens cannot be compared with another arm's: if two are equally
        likely, rounding chooses, and all after it differ.
        """
        gaps, _ = self._scored()
        return {"outputs.likeliest": gaps <= math.sqrt(self.epsilon)}


class Padding:
    """Arguments that show a decoder the padding of a ragged batch.

    They are for the prompt and for each later token.
    """

    def __init__(self, model: Any, batch: Batch, options: TransformersOptions) -> None:
        """Read the mask of a batch.

        `batch` holds ids and mask, padded on the left.
        """
        mask = batch["attention_mask"]
        self._mask = torch.cat([mask, mask.new_ones(len(mask), options.new_tokens)], dim=1)
        self._prompt, self._whole = mask.shape[1], options.cache is CacheKind.STATIC
        places = (mask.cumsum(dim=1) - 1).clamp_min(0)
        self._last = places[:, -1:]
        self._placed = "position_ids" in arguments_of(model)
        self.prompt: dict[str, Tensor] = {"position_ids": places} if self._placed else {}

    def token(self, number: int) -> dict[str, Tensor]:
        """Return the arguments for the token `number`, from 1.

        A static cache keeps one shape: causality hides its empty places.
        """
        mask = self._mask if self._whole else self._mask[:, : self._prompt + number]
        return {
            "attention_mask": mask,
            **({"position_ids": self._last + number} if self._placed else {}),
        }


class ByGenerate:
    """`generate` of transformers, with all that it does around the model.

    Of a candidate the pass that decodes is translated.
    """

    def __init__(
        self,
        model: Any,
        options: TransformersOptions,
        decode: Callable[..., Any] | None,
        *,
        compiles_prompt: bool,
        first: int,
    ) -> None:
        """Take over the model's settings for `generate`, and its forward pass.

        `decode` is the candidate's forward pass; if it `compiles_prompt`, it takes the prompt, too.

        A separate decoder starts with `first`.

        The model's own settings for `generate` are put aside: penalties and ends of texts do not
        belong in a measurement.
        """
        self._model, self._options = model, options
        self._settings = model.generation_config = settings_of(options, first)
        self._before = vars(model).get("forward")
        self._forward = (
            None
            if decode is None
            else self._translated(model.forward, decode, compiles_prompt=compiles_prompt)
        )

    def _translated(
        self, eager: Callable[..., Any], decode: Callable[..., Any], *, compiles_prompt: bool
    ) -> Callable[..., Any]:
        """Return a forward pass that takes single tokens through the candidate.

        It has the arguments of the model's own.
        """
        name = "decoder_input_ids" if self._model.config.is_encoder_decoder else "input_ids"

        @wraps(eager)
        def forward(*values: Any, **arguments: Any) -> Any:
            if not compiles_prompt and (
                arguments.get(name) is None or arguments[name].shape[1] != 1
            ):
                return eager(*values, **arguments)
            self._put(self._before)  # what is translated is the model, and calls its forward pass
            try:
                return decode(
                    *values,
                    **{key: value for key, value in arguments.items() if key != "use_cache"},
                )
            finally:
                self._put(forward)

        return forward

    def _put(self, forward: Callable[..., Any] | None) -> None:
        """Give the model another forward pass; `None` is its class's."""
        if forward is None:
            vars(self._model).pop("forward", None)
        else:
            vars(self._model)["forward"] = forward

    def __call__(
        self,
        batch: Batch,
        start: Mapping[str, Tensor],
        cache: Any,
        mark: Mark,
        *,
        all_logits: dict[str, Tensor] | None = None,
        script_tokens: Tokens | None = None,
    ) -> Tokens:
        """Run a generation; mark after the first token and at the end.

        Puts logits into `all_logits`, and takes the tokens of `script_tokens` if given.
        """
        from transformers import GenerationMixin, LogitsProcessorList, StoppingCriteriaList

        # Whisper's own splits long sound, and calls this for each piece.
        generate: Any = GenerationMixin.generate
        new = self._options.new_tokens
        arguments = dict(batch)
        inputs = arguments.pop(self._model.main_input_name)
        # Otherwise an id that happens to be the padding's would be masked.
        if not inputs.is_floating_point():
            arguments.setdefault("attention_mask", torch.ones_like(inputs))
        if self._forward is not None:
            self._put(self._forward)
        try:
            tokens: Tensor = generate(
                self._model,
                inputs=inputs,
                **arguments,
                **start,
                generation_config=self._settings,
                past_key_values=cache,
                logits_processor=LogitsProcessorList(
                    [] if all_logits is None else [_watch(all_logits, script_tokens)]
                ),
                stopping_criteria=StoppingCriteriaList(
                    [_marking(mark, len(inputs), inputs.device)]
                ),
            )
        finally:
            self._put(self._before)
        mark()
        return tuple(
            tokens[:, tokens.shape[1] - new + number].unsqueeze(1) for number in range(new)
        )


def settings_of(options: TransformersOptions, first: int) -> Any:
    """Return the `GenerationConfig` of a case."""
    from transformers import GenerationConfig

    sampling = options.sampling
    return GenerationConfig(  # type: ignore[no-untyped-call] # transformers leaves it unannotated
        do_sample=sampling is not None,
        **({} if sampling is None else {**asdict(sampling), "top_k": sampling.top_k or 0}),
        decoder_start_token_id=first,
        pad_token_id=PADDING,
        max_new_tokens=options.new_tokens,
        min_new_tokens=options.new_tokens,
        disable_compile=True,
    )


def _marking(mark: Mark, rows: int, device: torch.device) -> Callable[..., Tensor]:
    """Return a stopping rule for `generate`: it never stops, and marks after the first token."""
    never = torch.zeros(rows, dtype=torch.bool, device=device)
    has_marked = False

    def stop(*_: Any, **__: Any) -> Tensor:
        nonlocal has_marked
        if not has_marked:
            has_marked = True
            mark()
        return never

    return stop


def _watch(
    all_logits: dict[str, Tensor], script_tokens: Tokens | None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a logits processor: `generate` shows it the logits before it takes a token."""

    def look(_: Tensor, logits: Tensor) -> Tensor:
        number = len(all_logits)
        all_logits[f"logits: token {number}"] = logits[:, None].detach().cpu().clone()
        return (
            logits
            if script_tokens is None
            else torch.full_like(logits, -torch.inf).scatter(-1, script_tokens[number], 0.0)
        )

    return look


def require_generation(model: Any, options: TransformersOptions) -> None:
    """Raise `Unsupported` if a model cannot generate, or not in this way."""
    name = type(model).__name__
    if not model.can_generate():
        raise Unsupported(
            f"{name} does not generate; mode generation needs a decoder with a language head"
        )
    if not {"past_key_values", "use_cache"} <= set(arguments_of(model)):
        raise Unsupported(
            f"{name} keeps its state elsewhere than in past_key_values, which this suite does not"
            " drive"
        )
    if options.ragged and (
        model.config.is_encoder_decoder or "attention_mask" not in arguments_of(model)
    ):
        raise Unsupported(
            f"{name} has no prompt that continues; `ragged` is for decoders with a mask"
        )
    if options.cache is CacheKind.STATIC and not getattr(model, "_can_compile_fullgraph", True):
        raise Unsupported(f"{name} has no static cache")


def last_logits_only(model: Any) -> dict[str, int]:
    """Leave out the prompt's logits, which have no reader, if a model can."""
    return {"logits_to_keep": 1} if "logits_to_keep" in arguments_of(model) else {}


def dynamic_cache(model: Any) -> Any:
    """Return an empty cache that grows."""
    from transformers import DynamicCache, EncoderDecoderCache

    decoder_cache = DynamicCache(config=model.config)
    return (
        EncoderDecoderCache(decoder_cache, DynamicCache(config=model.config))
        if model.config.is_encoder_decoder
        else decoder_cache
    )


def static_cache(model: Any, options: TransformersOptions) -> Any:
    """Return an empty cache of full length.

    It holds all new tokens, and the prompt or the encoder's states.
    """
    from transformers import EncoderDecoderCache, StaticCache

    length = options.sequence_length or 1
    if not model.config.is_encoder_decoder:
        return StaticCache(config=model.config, max_cache_len=length + options.new_tokens)
    encoded = getattr(model.config, "max_source_positions", length)
    decoder_cache = StaticCache(config=model.config, max_cache_len=options.new_tokens + 1)
    return EncoderDecoderCache(
        decoder_cache, StaticCache(config=model.config, max_cache_len=encoded)
    )
