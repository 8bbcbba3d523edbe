"""Answers in OpenAI's shape: in one piece, or as the chunks of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agentcache_sdk.testing._rendering import content_of, reasoning_of, reply_tokens
from agentcache_sdk.testing._tokens import encode, split


@dataclass(frozen=True)
class Choice:
    """One reply as it is sent.

    Attributes:
        message: an assistant message.
        tokens: its ids, without the end token.
        completion_tokens: with it.
    """

    index: int
    message: dict[str, Any]
    tokens: list[int]
    completion_tokens: int
    finish_reason: str
    stop_reason: str | None = None


@dataclass(frozen=True)
class Envelope:
    """What all answers to one request have in common.

    Attributes:
        echo: the prompt, where it is to be repeated in front.
        prompt_ids: where they were asked for.
    """

    id: str
    model: str
    created: int
    chat: bool
    include_usage: bool = False
    return_ids: bool = False
    echo: str = ""
    prompt_ids: list[int] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return "chat.completion" if self.chat else "text_completion"

    def whole(self, choices: list[Choice], usage: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
        """The answer in one object."""
        ids = {"prompt_token_ids": self.prompt_ids} if self.return_ids else {}
        sent = [self._whole_choice(choice) for choice in choices]
        return self._dressed(self.kind, sent) | ids | {"usage": usage, "agentcache": report}

    def chunks(self, choices: list[Choice]) -> Iterator[tuple[bool, dict[str, Any]]]:
        """Chunks, and whether each holds a piece of a reply; those that ``closing`` gives come after them."""
        first = True
        for choice in choices:
            for content, ids in self._pieces(choice):
                chunk = self._chunk(choice.index, content, ids)
                if first and self.return_ids:
                    chunk["prompt_token_ids"] = self.prompt_ids
                opens = content.get("delta", {}).get("role") is not None
                first = False
                yield not opens, chunk
            if choice is not choices[-1]:
                yield False, self._end(choice)

    def closing(self, last: Choice, usage: dict[str, Any], report: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The end of the last choice; then usage and report, on a chunk of their own where usage was asked for."""
        if not self.include_usage:
            yield self._end(last) | {"agentcache": report}
            return
        yield self._end(last)
        yield self._dressed(self._chunk_kind, []) | {"usage": usage, "agentcache": report}

    @property
    def _chunk_kind(self) -> str:
        return f"{self.kind}.chunk" if self.chat else self.kind

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        ids = {"token_ids": choice.tokens} if self.return_ids else {}
        text = {"message": choice.message} if self.chat else {"text": self.echo + content_of(choice.message)}
        return {"index": choice.index, **text, "logprobs": None, **_finish(choice), **ids}

    def _pieces(self, choice: Choice) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Text by tokens, calls in a head and two halves of arguments."""
        message = choice.message
        if not self.chat:
            if self.echo:
                yield {"text": self.echo}, []
            yield from (({"text": piece}, encode(piece)) for piece in split(content_of(message)))
            return
        yield {"delta": {"role": "assistant", "content": ""}}, []
        thought = split(reasoning_of(message))
        for index, piece in enumerate(thought):
            opened = encode("<think>") if not index else []
            closed = encode("</think>") if index == len(thought) - 1 else []
            yield {"delta": {"reasoning_content": piece}}, [*opened, *encode(piece), *closed]
        yield from (({"delta": {"content": piece}}, encode(piece)) for piece in split(content_of(message)))
        for index, call in enumerate(message.get("tool_calls") or ()):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            head = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
            yield {"delta": {"tool_calls": [head]}}, reply_tokens({"tool_calls": [call]})
            middle = len(arguments) // 2
            for half in filter(None, (arguments[:middle], arguments[middle:])):
                yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": half}}]}}, []

    def _end(self, choice: Choice) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk(choice.index, {**content, **_finish(choice)}, [])

    def _chunk(self, index: int, content: dict[str, Any], ids: list[int]) -> dict[str, Any]:
        told = {"token_ids": ids} if self.return_ids else {}
        return self._dressed(
            self._chunk_kind, [{"index": index, "logprobs": None, "finish_reason": None, **content, **told}]
        )

    def _dressed(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        envelope = {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}
        return envelope | ({"usage": None} if self.include_usage else {})


def _finish(choice: Choice) -> dict[str, Any]:
    return {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
