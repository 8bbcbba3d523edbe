"""What a client has sent: the texts of the latest requests, and digests of many more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentcache_sdk._look.said import Said, Setting, chain_of

MAX_TEXTS = 32
"""Requests whose texts are kept, the newest ones; one that goes on with another takes its place."""
MAX_CHARS = 4_000_000
"""Characters of all of them together (mostly the caller's own strings, not copies)."""
MAX_DIGESTS = 4_096
"""Requests that are known again by digest alone: about 300 bytes each, and their replies' texts up to ``MAX_CHARS``."""
_SETTINGS = 4
_REPLIES = 8


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it is compared.

    Attributes:
        form: what the reply is held to.
        chain: digests of the first 0, 1, 2 ... messages.
        chars: of all messages.
    """

    messages: tuple[Said, ...]
    setting: Setting
    form: str
    chain: tuple[int, ...]
    chars: int

    @classmethod
    def of(cls, messages: Sequence[Said], setting: Setting, form: str = "") -> Request:
        return cls(tuple(messages), setting, form, chain_of(messages), sum(message.chars for message in messages))

    @property
    def name(self) -> int:
        """Equal for requests with the same messages."""
        return self.chain[-1]

    def equal_messages(self, other: Request) -> int:
        """How many messages both begin with."""
        low, high = 0, min(len(self.chain), len(other.chain))
        while high - low > 1:
            middle = (low + high) // 2
            if self.chain[middle] == other.chain[middle]:
                low = middle
            else:
                high = middle
        return low


@dataclass(slots=True)
class Sent:
    """A request that went out, and what came back.

    Attributes:
        ways: settings and forms that it was sent with, the latest last.
        replies: what came back, the latest last.
        tokens: of its prompt and the latest reply, once the server has counted them.
        reply_tokens: of the latest reply alone.
    """

    ways: list[tuple[Setting, str]] = field(default_factory=list)
    replies: list[Said] = field(default_factory=list)
    tokens: int | None = None
    reply_tokens: int = 0

    def add_way(self, setting: Setting, form: str) -> None:
        way = (setting, form)
        if way in self.ways:
            self.ways.remove(way)
        self.ways = [*self.ways[-_SETTINGS + 1 :], way]

    def add_replies(self, replies: Sequence[Said], tokens: int | None, reply_tokens: int) -> None:
        known = {reply.digest for reply in replies}
        self.replies = [*(r for r in self.replies if r.digest not in known), *replies][-_REPLIES:]
        self.tokens, self.reply_tokens = tokens, reply_tokens


@dataclass
class Memory:
    """Not safe for several threads; ``ClientLook`` locks it."""

    texts: OrderedDict[tuple[int, Setting], Request] = field(default_factory=OrderedDict)
    sent: OrderedDict[int, Sent] = field(default_factory=OrderedDict)
    generated: OrderedDict[int, None] = field(default_factory=OrderedDict)
    chars: int = 0
    reply_chars: int = 0

    def add(self, request: Request) -> None:
        """One that is being sent."""
        self._drop_text((request.name, request.setting))
        self.texts[request.name, request.setting] = request
        self.chars += request.chars
        while len(self.texts) > MAX_TEXTS or (self.chars > MAX_CHARS and len(self.texts) > 1):
            self._drop_text(next(iter(self.texts)))
        self.sent.setdefault(request.name, Sent()).add_way(request.setting, request.form)
        self.sent.move_to_end(request.name)
        while len(self.sent) > MAX_DIGESTS:
            self._forget(next(iter(self.sent)))

    def settle(self, request: Request) -> None:
        """It was answered, and so takes the place of those that it goes on with."""
        for key, old in list(self.texts.items()):
            goes_on = len(old.messages) < len(request.messages) and old.equal_messages(request) == len(old.messages)
            if goes_on and old.setting == request.setting:
                self._drop_text(key)

    def remove(self, request: Request) -> None:
        """It was not answered: nothing is known of what the server has."""
        if self.texts.get((request.name, request.setting)) is request:
            self._drop_text((request.name, request.setting))
        sent = self.sent.get(request.name)
        if sent is not None and not sent.replies:
            self._forget(request.name)

    def add_replies(self, name: int, replies: Sequence[Said], tokens: int | None, reply_tokens: int) -> None:
        for reply in replies:
            self.generated[reply.digest] = None
            self.generated.move_to_end(reply.digest)
        while len(self.generated) > MAX_DIGESTS:
            self.generated.popitem(last=False)
        sent = self.sent.get(name)
        if sent is None:
            return
        self.reply_chars -= sum(reply.chars for reply in sent.replies)
        sent.add_replies(replies, tokens, reply_tokens)
        self.reply_chars += sum(reply.chars for reply in sent.replies)
        while self.reply_chars > MAX_CHARS and len(self.sent) > 1:
            self._forget(next(iter(self.sent)))

    def beginning(self, request: Request) -> tuple[int, Sent] | None:
        """The longest request of before that this one begins with, by its number of messages."""
        for length in range(len(request.messages), 0, -1):
            if sent := self.sent.get(request.chain[length]):
                return length, sent
        return None

    def latest(self) -> Iterator[Request]:
        return reversed(self.texts.values())

    def replies_to(self, request: Request) -> Sequence[Said]:
        sent = self.sent.get(request.name)
        return sent.replies if sent else ()

    def _drop_text(self, key: tuple[int, Setting]) -> None:
        if old := self.texts.pop(key, None):
            self.chars -= old.chars

    def _forget(self, name: int) -> None:
        self.reply_chars -= sum(reply.chars for reply in self.sent.pop(name).replies)
