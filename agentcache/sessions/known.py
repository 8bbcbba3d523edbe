"""Conversations that were generated here, found again by their text, so that clients without sessions profit too.

::

    request, rendered    [ text of a known conversation, reply included ][ new messages, generation prompt ]
    ids                  [ as they were read and drawn ................. ][ tokenised ...................... ]

A client that sends its whole history sends the reply as text.  Tokenised again, a reply can become other tokens than those
that were drawn, and then its pages do not match.  Here the drawn ones are looked up by a hash of everything up to the end
of the reply.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict

from xxhash import xxh3_128

from agentcache.sessions.transcript import Transcript

_KEPT_TOKENS = 4_000_000
"""4 bytes each."""


class KnownTranscripts:
    """Transcripts by namespace and text.  Safe to use from any thread.

    Args:
        max_tokens: how many token ids to keep; the transcripts that were found least recently go first.
    """

    def __init__(self, max_tokens: int = _KEPT_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._tokens = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[bytes, bytes], tuple[Transcript, int]] = OrderedDict()
        self._lengths: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def remember(self, root: bytes, transcript: Transcript) -> None:
        """Keep ``transcript``, whose text must spell no control token that is not one."""
        if not transcript.text or len(transcript) > self._max_tokens:
            return
        length = len(transcript.text)
        key = (root, xxh3_128(transcript.text.encode()).digest())
        # What is kept needs no text: its hash and its length find it.
        entry = (Transcript(transcript.ids, "", transcript.end), length)
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._tokens += len(transcript)
            insort(self._lengths.setdefault(root, []), length)
            while self._tokens > self._max_tokens:
                self._drop(next(iter(self._entries)))

    def find(self, root: bytes, text: str) -> Transcript | None:
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
            key = (root, running.digest())
            entry = self._entries.get(key)
            if entry is not None and entry[1] == length:
                best = key
        if best is None:
            return None
        with self._lock:
            entry = self._entries.get(best)
            if entry is None:  # it made room meanwhile
                return None
            self._entries.move_to_end(best)
        transcript, length = entry
        return Transcript(transcript.ids, text[:length], transcript.end)

    def _drop(self, key: tuple[bytes, bytes]) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        transcript, length = entry
        self._tokens -= len(transcript)
        lengths = self._lengths[key[0]]
        del lengths[bisect_right(lengths, length) - 1]
        if not lengths:
            del self._lengths[key[0]]
