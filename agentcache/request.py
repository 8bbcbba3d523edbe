"""What is asked for and what runs: sampling parameters, requests, sequences and the outputs they emit.

Words: a *request* is one prompt; it has ``n`` *sequences*, which share the prompt and differ in what they generate.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentcache.errors import AgentCacheError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agentcache.cache.explain import Miss
    from agentcache.cache.fetching import Errand
    from agentcache.cache.lease import Lease
    from agentcache.cache.tokens import Bookmark, PagedTokens
    from agentcache.chat.detokenizer import TextStream


class ConstraintError(AgentCacheError):
    """A reply that can be held to its grammar no longer."""


class Constraint(Protocol):
    """Which tokens one sequence may draw next.  Used by the engine's thread only."""

    def mask(self) -> NDArray[np.uint32]:
        """Allowed tokens as bits, ``[ceil(vocab / 32)]``: bit ``i % 32`` of word ``i // 32`` stands for token ``i``.

        The same until ``advance``, since a step may run twice.  Never raises and never bans everything before ``finished``: it
        serves a whole step, so a constraint that fails allows any token and raises in ``advance``.
        """

    def advance(self, token: int) -> None:
        """``token`` was drawn.

        Raises:
            ConstraintError: the library failed, or ``token`` does not fit; the sequence must end.
        """

    @property
    def finished(self) -> bool:
        """Whether what was drawn is complete and nothing but an end token may follow."""


class Grammar(Protocol):
    """What a reply must look like; compiled, and shared between sequences."""

    def start(self) -> Constraint:
        """At the beginning of a reply."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen.  Checked at the HTTP edge; the engine trusts it.

    ``temperature`` 0 is greedy, whatever the filters say.  ``top_k`` 0 and ``top_p`` 1 and ``min_p`` 0 mean no filter.
    Log-probabilities that are reported are those of the model's own distribution (temperature 1, before penalties,
    biases and filters).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None
    """How many alternatives to report beside the chosen token; ``None`` reports nothing, 0 the chosen token alone."""
    prompt_logprobs: int | None = None
    """The same for every prompt token.  Forces the whole prompt to be computed, so the figures never depend on the cache."""
    n: int = 1
    shown_tokens: frozenset[int] = frozenset()
    """Control tokens that the text shows; all others are left out of it."""
    grammar: Grammar | None = None
    """What the reply must look like; other tokens are never drawn."""

    @property
    def greedy(self) -> bool:
        """A temperature so small that dividing by it would overflow is greedy as well."""
        return self.temperature < 1e-5


class FinishReason(str, enum.Enum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class SequenceState(enum.Enum):
    """Legal moves: WAITING -> RUNNING -> (PREEMPTED -> RUNNING)* -> FINISHED; any state -> FINISHED by abort.

    FOLLOWING: one of the ``n`` sequences of a request that waits for the first one to compute their prompt.
    """

    WAITING = "waiting"
    FOLLOWING = "following"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of ``token`` and of the ``top`` alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceReport:
    """What one sequence cost; see ``usage`` and the ``agentcache`` object of the HTTP responses."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """At the first admission only; never counts the one token that is redone on a full hit."""
    cached_pages: int
    """Whole pages shared at the first admission."""
    partial_tokens: int
    """Tokens copied out of a page that was only partly equal (``cached_tokens - cached_pages * page_size``, or 0)."""
    computed_tokens: int
    """Positions really run, recomputation after preemption included."""
    preemptions: int
    miss: Miss | None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    """Of the cached tokens, those that came back from a tier below the device (``host``, ``disk``, ``store``)."""
    queue_s: float | None = field(default=None, compare=False)
    """Seconds from its arrival at the engine to its first admission; of a request's first sequence."""


@dataclass(slots=True)
class Output:
    """What one step added to one sequence.  The last one carries ``finish_reason`` and ``report``.

    Nobody changes one once it is made; it is not frozen because one is made a token, and a frozen one takes three times as
    long to make.

    Where text does not decide when a sequence ends (no stop strings), the engine's thread makes none: ``spelled`` is false
    and ``text`` empty until somebody who reads the outputs in order has made it (``engine.spelling``).
    """

    index: int
    """Which of the ``n`` sequences."""
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token that ended it, if one did."""
    end_token: int | None = None
    """The token that ended it, if one did: drawn and counted, but part of neither ``text`` nor ``token_ids``."""
    report: SequenceReport | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    error: str | None = None
    spelled: bool = True


class Standing(NamedTuple):
    """Where a request stands in the queue.

    Attributes:
        priority: a lower number is served first.
        program: what it is a turn of (a session), inside its namespace: a program's turns keep its place in the queue.
    """

    priority: int = 0
    program: str | None = None


Sink = Callable[["Output"], None]
"""Receives the outputs of a request, in order, on the engine's thread; must not block."""


@dataclass(slots=True)
class Request:
    """One prompt to serve.

    Args:
        request_id: unique among live requests.
        prompt: token ids, at least one.
        root: the namespace root under which its pages are keyed (``cache.hashing.namespace_root``).
        sink: where its outputs go.
        tokens: the prompt in pages, where what is known of its beginning was looked up already.
        bookmark: told of the tokens when the request has ended.
    """

    request_id: str
    prompt: Sequence_[int]
    params: SamplingParams
    root: bytes
    sink: Sink
    priority: int = 0
    tokens: PagedTokens | None = None
    bookmark: Bookmark | None = None
    program: str | None = None
    """See ``Standing``."""
    arrival: float = 0.0
    """Seconds on the engine's clock; set when the engine takes it in."""
    sequences: list[Sequence] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Sequence:
    """One of a request's ``n`` continuations, and everything the engine knows of it.

    ::

        tokens:  [ prompt .................... | output ........... ]
        indices: 0                    prompt_len          len(tokens)
        valid keys and values: [0, lease.computed)
    """

    request: Request
    index: int
    tokens: PagedTokens
    prompt_len: int
    max_tokens: int
    """How many tokens it may generate: what was asked for, or the room left."""
    seed: int
    """Every sampled token is a function of (seed, position), so batches and preemption never change it."""
    rank: int = 0
    """Order of arrival, set by the scheduler."""
    state: SequenceState = SequenceState.WAITING
    lease: Lease | None = None
    errand: Errand | None = None
    """What it asks of a tier behind a network before its next admission."""
    constraint: Constraint | None = None
    text: TextStream | None = None
    """Made for sequences with stop strings only: for them text decides when they end."""
    cached_tokens: int | None = None
    """Set at the first admission."""
    cached_pages: int = 0
    computed_tokens: int = 0
    preemptions: int = 0
    valid_before: int = 0
    """Positions that had keys and values when it was last preempted."""
    recomputed: int = 0
    """Positions that preemptions made it compute again; while it is preempted, those that they may."""
    secured: int = 0
    """Room for its first ``secured`` tokens is promised: nobody else gets it, and no victim is made of it before that."""
    miss: Miss | None = None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    first_scheduled: float | None = None
    last_token: float | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def params(self) -> SamplingParams:
        return self.request.params

    def report(self) -> SequenceReport:
        cached = self.cached_tokens or 0
        return SequenceReport(
            prompt_tokens=self.prompt_len,
            completion_tokens=self.output_len,
            cached_tokens=cached,
            cached_pages=self.cached_pages,
            partial_tokens=max(0, cached - self.cached_pages * self.tokens.page_size),
            computed_tokens=self.computed_tokens,
            preemptions=self.preemptions,
            miss=self.miss,
            tier_tokens=self.tier_tokens,
            queue_s=None if self.first_scheduled is None else self.first_scheduled - self.request.arrival,
        )
