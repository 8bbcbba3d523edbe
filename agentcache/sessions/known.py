"""Conversations that were generated here, found again by what was said, so that clients without sessions profit too.

::

    request    [ system  user  assistant  tool  assistant ][ user ]
    known      [ the same, said in the same namespace ..... ]          ids as they were read and drawn
    names      n0    n1    n2         n3    n4          n5

A client that sends its whole history sends each reply as a message.  Rendered and tokenised again, a reply can become other
text and other tokens than those that were drawn, and then its pages do not match.  Here the drawn ones are looked up by the
name of the conversation that ends with the reply (see ``naming``), or by its whole text.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_128

from agentcache.chat.messages import Message
from agentcache.sessions.naming import reasoning_digest
from agentcache.sessions.transcript import Transcript

_KEPT_TOKENS = 4_000_000
"""4 bytes each, and their text."""
_ALIKE = 8
"""Conversations of one name that are kept: replies that differ in their reasoning, or in white space."""


@dataclass(eq=False)
class _Held:
    """A transcript and the keys that lead to it; it is dropped with the last one."""

    transcript: Transcript
    names: set[bytes] = field(default_factory=set)
    texts: set[tuple[bytes, bytes]] = field(default_factory=set)


@dataclass(frozen=True)
class _Ending:
    """The beginning of a held transcript that ends with its reply ``index``."""

    held: _Held
    index: int

    @property
    def ids(self) -> array[int]:
        transcript = self.held.transcript
        return transcript.ids[: transcript.replies[self.index].end.tokens]

    @property
    def characters(self) -> int:
        return self.held.transcript.replies[self.index].end.characters

    def transcript(self) -> Transcript:
        return self.held.transcript.first_replies(self.index + 1)


class KnownTranscripts:
    """Transcripts by namespace and by what was said.  Safe to use from any thread.

    A conversation that goes on replaces its own beginning, so it is held once, however many turns it has.

    Args:
        max_tokens: how many token ids to keep; the transcripts that were found least recently go first.
    """

    def __init__(self, max_tokens: int = _KEPT_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._tokens = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._by_name: dict[bytes, list[_Ending]] = {}
        self._by_text: dict[tuple[bytes, bytes], _Ending] = {}
        self._lengths: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def remember(self, names: Sequence[bytes], transcript: Transcript, text_root: bytes | None) -> None:
        """Keep ``transcript``, which ends with a reply.

        Args:
            names: of the conversation's first 0, 1, 2 ... messages, that reply included.
            text_root: the namespace in which its text finds it too; ``None`` where the text spells control tokens that
                are none, so that it does not say which tokens it stands for.
        """
        if not transcript.replies or not transcript.text or len(transcript) > self._max_tokens:
            return
        new = _Held(transcript)
        endings = [_Ending(new, index) for index in range(len(transcript.replies))]
        keys = [] if text_root is None else _text_keys(text_root, transcript)
        with self._lock:
            self._held[id(new)] = new
            self._tokens += len(transcript)
            same: set[int] = set()
            for ending in reversed(endings):
                self._name(names[transcript.replies[ending.index].message + 1], ending, same)
            for index, key in keys:
                self._spell(key, endings[index])
            while self._tokens > self._max_tokens:
                self._drop(next(iter(self._held.values())))

    def find(self, names: Sequence[bytes], messages: Sequence[Message]) -> Iterator[Transcript]:
        """Known beginnings of ``messages`` (in the one shape), those with most replies first; lazily.

        A reply that comes back with reasoning is known only by its own; without any it is known as well.

        Args:
            names: of the first 0, 1, 2 ... messages.
        """
        reasoning = [
            reasoning_digest(text) if isinstance(text := message.get("reasoning_content"), str) else ""
            for message in messages
        ]
        found: list[tuple[int, int, _Ending]] = []
        for count in range(len(messages), 0, -1):
            if messages[count - 1]["role"] != "assistant":
                continue
            with self._lock:
                endings = list(self._by_name.get(names[count], ()))
            for ending in endings:
                usable = _usable(ending, reasoning)
                if usable == ending.index + 1:
                    yield self._use(ending)
                elif usable:
                    found.append((usable, -len(found), ending))
            if endings and found and max(found)[0] >= endings[0].index:
                break
        for usable, _, ending in sorted(found, key=lambda entry: entry[:2], reverse=True):
            yield self._use(_Ending(ending.held, usable - 1))

    def find_text(self, root: bytes, text: str) -> Transcript | None:
        """The longest known transcript that ``text`` begins with.  O(len(text)), plus a hash for each known length."""
        with self._lock:
            known = self._lengths.get(root, [])
            lengths = known[: bisect_right(known, len(text))]
        running = xxh3_128()
        done, best = 0, None
        for length in lengths:
            if length == done:
                continue  # several of one length
            running.update(text[done:length].encode())
            done = length
            ending = self._by_text.get((root, running.digest()))
            if ending is not None and ending.characters == length:
                best = ending
        return None if best is None else self._use(best)

    def _use(self, ending: _Ending) -> Transcript:
        with self._lock:
            if id(ending.held) in self._held:  # it may have made room meanwhile, and still be read
                self._held.move_to_end(id(ending.held))
        return ending.transcript()

    def _name(self, name: bytes, ending: _Ending, same: set[int]) -> None:
        """Let ``name`` lead to ``ending``, and no more to others that are the same ids.

        Args:
            same: transcripts that were found to begin with the ids of one later in this conversation.
        """
        kept: list[_Ending] = []
        for other in self._by_name.get(name, ()):
            if id(other.held) in same or other.ids == ending.ids:
                same.add(id(other.held))
                self._forget(other.held, name)
            else:
                kept.append(other)
        for other in kept[_ALIKE - 1 :]:
            self._forget(other.held, name)
        self._by_name[name] = [ending, *kept[: _ALIKE - 1]]
        ending.held.names.add(name)

    def _spell(self, key: tuple[bytes, bytes], ending: _Ending) -> None:
        before = self._by_text.get(key)
        if before is not None:
            self._unspell(before, key)
        self._by_text[key] = ending
        ending.held.texts.add(key)
        insort(self._lengths.setdefault(key[0], []), ending.characters)
        if before is not None:
            self._drop_unnamed(before.held)

    def _unspell(self, ending: _Ending, key: tuple[bytes, bytes]) -> None:
        ending.held.texts.discard(key)
        lengths = self._lengths[key[0]]
        del lengths[bisect_right(lengths, ending.characters) - 1]
        if not lengths:
            del self._lengths[key[0]]

    def _forget(self, held: _Held, name: bytes) -> None:
        held.names.discard(name)
        self._drop_unnamed(held)

    def _drop_unnamed(self, held: _Held) -> None:
        if not held.names and not held.texts:
            self._drop(held)

    def _drop(self, held: _Held) -> None:
        if self._held.pop(id(held), None) is None:
            return
        self._tokens -= len(held.transcript)
        for name in held.names:
            self._by_name[name] = [other for other in self._by_name[name] if other.held is not held]
            if not self._by_name[name]:
                del self._by_name[name]
        for key in list(held.texts):
            self._unspell(self._by_text.pop(key), key)
        held.names.clear()


def _usable(ending: _Ending, reasoning: Sequence[str]) -> int:
    """How many of its replies, from the first on, came back without other reasoning than was generated."""
    for count, reply in enumerate(ending.held.transcript.replies[: ending.index + 1]):
        if reasoning[reply.message] not in ("", reply.reasoning):
            return count
    return ending.index + 1


def _text_keys(root: bytes, transcript: Transcript) -> list[tuple[int, tuple[bytes, bytes]]]:
    """The index of each reply with a key for the text up to its end.

    A reply without text has none, whatever tokens it is of: the text up to its end is that of its own prompt.
    """
    running = xxh3_128()
    done = 0
    keys = []
    for index, reply in enumerate(transcript.replies):
        running.update(transcript.text[done : reply.end.characters].encode())
        done = reply.end.characters
        if reply.end.characters > reply.start.characters:
            keys.append((index, (root, running.digest())))
    return keys
