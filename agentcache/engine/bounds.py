"""What a request may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentcache.errors import RequestError
from agentcache.request import Request


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request may ask for.

    ``capacity`` is the smaller of the context length and what the whole pool can hold, in tokens.
    """

    max_model_len: int
    capacity: int
    vocab_size: int
    max_running: int


def check_request(request: Request, bounds: Bounds) -> None:
    """Refuse what can never be served.

    Raises:
        RequestError: empty prompt, token id outside the vocabulary, too long a prompt, too many sequences.
    """
    length = len(request.prompt)
    if not length:
        raise RequestError("prompt: got no tokens, expected at least one", "prompt")
    known = 0 if request.tokens is None else request.tokens.num_known  # checked when they came first
    worst = _outside(request.prompt[known:], bounds.vocab_size)
    if worst is not None:
        raise RequestError(f"prompt: got token id {worst}, expected 0 to {bounds.vocab_size - 1}", "prompt")
    # A prompt that fills everything could still be scored, but not continued.
    least = 0 if request.params.max_tokens == 0 else 1
    if length + least > bounds.capacity:
        what = "context" if bounds.capacity == bounds.max_model_len else "page pool"
        raise RequestError(
            f"the prompt has {length} tokens, and the {what} holds {bounds.capacity} tokens, prompt and reply together",
            "prompt",
            "context_length_exceeded",
        )
    if request.params.n > bounds.max_running:
        raise RequestError(f"n: got {request.params.n}, expected at most {bounds.max_running}", "n")


def _outside(ids: Iterable[int], vocab_size: int) -> int | None:
    low, high = min(ids, default=0), max(ids, default=0)
    if low < 0:
        return low
    return high if high >= vocab_size else None
