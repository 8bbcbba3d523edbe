"""From a checked body to sampling parameters: the rules that span fields, or need to know the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentcache.dialects.wording import shown
from agentcache.request import SamplingParams
from agentcache.server.bodies import MAX_STOPS, ChatBody, CompletionBody, GenerationBody
from agentcache.server.errors import bad_field

_TOKEN = re.compile("[0-9]{1,10}")


def sampling_params(body: GenerationBody, vocab_size: int) -> SamplingParams:
    """Sampling parameters of ``body``.

    Raises:
        ApiError: 400, naming the field.
    """
    _check_served(body)
    n = body.n or 1
    logprobs, prompt_logprobs = _logprobs(body)
    return SamplingParams(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        seed=body.seed,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        logit_bias=_logit_bias(body.logit_bias or {}, vocab_size),
        max_tokens=_max_tokens(body),
        stop=_stops(body.stop),
        stop_token_ids=frozenset(_in_vocabulary("stop_token_ids", body.stop_token_ids or (), vocab_size)),
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        n=n,
    )


def _check_served(body: GenerationBody) -> None:
    """Fields whose meaning this version cannot keep are refused, never ignored."""
    if body.stream_options is not None and not body.stream:
        raise bad_field("stream_options", "only allowed when stream is true")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_field("best_of", f"got {body.best_of}, expected the value of n ({body.n or 1})")
    if body.session is not None and (body.n or 1) > 1:
        raise bad_field("n", f"got {body.n} with a session, which goes on with one reply: fork the session for more")
    if isinstance(body, CompletionBody) and body.suffix:
        raise bad_field("suffix", "text after the completion is not served", code="unsupported_value")


def _logprobs(body: GenerationBody) -> tuple[int | None, int | None]:
    """Alternatives to report for (generated, prompt) tokens."""
    if isinstance(body, ChatBody):
        if body.top_logprobs and not body.logprobs:
            raise bad_field("top_logprobs", f"got {body.top_logprobs}, expected logprobs to be true as well")
        return (body.top_logprobs or 0) if body.logprobs else None, None
    if isinstance(body, CompletionBody):
        return body.logprobs, body.logprobs if body.echo else None
    return None, None


def _max_tokens(body: GenerationBody) -> int | None:
    field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if limit == 0 and not (isinstance(body, CompletionBody) and body.echo):
        raise bad_field(field, "got 0, expected an integer from 1 (0 only with echo, to score a prompt)")
    return limit


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise bad_field("stop", f"got {len(stops):,} texts, expected up to {MAX_STOPS}")
    return stops


def _logit_bias(biases: dict[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    pairs: dict[int, float] = {}
    for key, bias in biases.items():
        if not _TOKEN.fullmatch(key) or int(key) >= vocab_size:
            message = f"got token {shown(key)}, expected token ids (as text) from 0 to {vocab_size - 1:,}"
            raise bad_field("logit_bias", message)
        if not -100 <= bias <= 100:
            raise bad_field("logit_bias", f"got {bias:g} for token {key}, expected numbers from -100 to 100")
        pairs[int(key)] = bias
    return tuple(pairs.items())


def _in_vocabulary(field: str, ids: Sequence[int], vocab_size: int, where: str | None = None) -> Sequence[int]:
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            message = f"got token {token} at {where or field}[{position}], expected ids from 0 to {vocab_size - 1:,}"
            raise bad_field(field, message)
    return ids


def check_tokens(field: str, ids: Sequence[int], vocab_size: int) -> None:
    """
    Raises:
        ApiError: 400 for ids outside the vocabulary.
    """
    _in_vocabulary(field, ids, vocab_size)


def split_prompts(prompt: str | list[Any], vocab_size: int, limit: int) -> list[str | list[int]]:
    """The prompts of a completion: each a text or a list of token ids, none of them empty, ``limit`` at most.

    Raises:
        ApiError: 400, saying which entry is wrong.
    """
    if isinstance(prompt, str):
        return [_text(prompt, "prompt")]
    if not prompt:
        raise bad_field("prompt", "got an empty list, expected at least one token id or one text")
    first = prompt[0]
    if isinstance(first, (int, float)):
        return [_ids(prompt, "prompt", vocab_size)]
    if len(prompt) > limit:
        raise bad_field("prompt", f"got {len(prompt):,} prompts, expected up to {limit:,}")
    if isinstance(first, str):
        return [_text(item, f"prompt[{i}]") for i, item in enumerate(prompt)]
    return [_ids(item, f"prompt[{i}]", vocab_size) for i, item in enumerate(prompt)]


def _text(item: Any, where: str) -> str:
    if not isinstance(item, str) or not item:
        raise bad_field("prompt", f"got {shown(item)} at {where}, expected text that is not empty")
    return item


def _ids(item: Any, where: str, vocab_size: int) -> list[int]:
    if not isinstance(item, list) or not item:
        raise bad_field("prompt", f"got {shown(item)} at {where}, expected a list of token ids that is not empty")
    # Long prompts are the common case: one pass in C over the types, one over the values.
    if set(map(type, item)) != {int}:
        bad, token = next((i, token) for i, token in enumerate(item) if type(token) is not int)
        raise bad_field("prompt", f"got {shown(token)} at {where}[{bad}], expected integer token ids")
    if min(item) < 0 or max(item) >= vocab_size:
        _in_vocabulary("prompt", item, vocab_size, where)
    return item
