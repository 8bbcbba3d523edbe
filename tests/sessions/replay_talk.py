"""Conversations without a model: a client that sends its whole history, and replies that a test makes up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay_templates import SPECIAL, Family
from tiny_tokenizer import write_tokenizer
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from agentcache.chat.messages import normalize_messages
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.splice import ChatInput
from agentcache.chat.tokenizer import Tokenizer
from agentcache.server.conversations import recall
from agentcache.server.misses import Asked
from agentcache.sessions.known import KnownTranscripts
from agentcache.sessions.naming import name_conversation
from agentcache.sessions.session import as_message
from agentcache.sessions.transcript import Prompt, Reply, Transcript

CORPUS = ("the cache keeps pages and the agent reads files and runs tests again and again <tool_call> </think>",)
ROOT = b"root"


def write_replay_tokenizer(folder: Path) -> Tokenizer:
    write_tokenizer(folder, CORPUS, 420, bos_token="<s>", eos_token="</s>", chat_template="{{ messages }}")
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(text) for text in SPECIAL])
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_folder(folder)


@dataclass
class Talk:
    """What the server does for one client."""

    family: Family
    tokenizer: Tokenizer
    tools: list[dict[str, Any]] | None = None
    kwargs: dict[str, Any] | None = None
    known: KnownTranscripts = field(default_factory=KnownTranscripts)

    def __post_init__(self) -> None:
        self.renderer = ChatRenderer(self.tokenizer, self.family.template)

    def ask(self, messages: list[dict[str, Any]], **changed: Any) -> Prompt:
        fields = {"tools": self.tools, "template_kwargs": self.kwargs, **changed}
        return recall(self.known, ROOT, ChatInput(messages, **fields), normalize_messages(messages), self.renderer)

    def drawn(self, raw: str) -> list[int]:
        """A way to draw ``raw`` that no tokenizer would choose: character by character, control tokens whole."""
        ids, place = [], 0
        while place < len(raw):
            special = next((text for text in SPECIAL if raw.startswith(text, place)), None)
            ids += self.tokenizer.encode(special or raw[place], parse_special=special is not None)
            place += len(special or raw[place])
        return ids

    def reply(
        self, prompt: Prompt, messages: list[dict[str, Any]], said: ReplyMessage, *, end: bool = True, raw: str | None = None
    ) -> Transcript:  # fmt: skip
        """The model says ``said``; the transcript that is known from then on."""
        text = self.family.write(said) if raw is None else raw
        end_token = self.tokenizer.special_tokens[self.family.end] if end else None
        reply = Reply(text, self.drawn(text), end_token, said)
        asked = Asked(prompt, messages, self.tools, self.kwargs)
        transcript = prompt.transcript.with_reply(len(messages), prompt.header, reply, self.tokenizer)
        spells = prompt.spells_controls
        names = name_conversation(ROOT, asked.tools, normalize_messages([*messages, as_message(said)]))
        self.known.remember(names, transcript, None if spells else ROOT)
        return transcript


def goes_on(prompt: Prompt, before: Transcript) -> bool:
    """Whether ``prompt`` is all of ``before``, to the token, and something new."""
    ids = prompt.transcript.ids
    whole = ids[: len(before)] == before.ids and prompt.transcript.text.startswith(before.text)
    return whole and prompt.kept.tokens >= len(before) and len(ids) > len(before)
