"""How an answer ends whose replica died in the midst of it: in the words of its endpoint, as the replica would have put it."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.datastructures import Headers

from agentcache.local.exchange import Head
from agentcache.server.anthropic.errors import PATH, told_at
from agentcache.server.errors import ApiError
from agentcache.server.responses.shape import error_json, failed_json
from agentcache.server.watch.request_ids import HEADERS
from agentcache.server.writer import event

RESPONSES = "/v1/responses"
_NUMBER = re.compile(rb'"sequence_number":(\d+)')
_LONGEST = 4 * 2**20
"""Bytes of a first event that are kept."""


def replica_lost() -> ApiError:
    """What a client is told whose replica is gone."""
    return ApiError(
        503,
        "the replica that was answering this request is gone; ask again",
        code="replica_lost",
        headers={"retry-after": "1"},
    )


class CutStream:
    """Follows a stream of events, and knows how to end it.

    Args:
        path: of the request, without what the server is mounted at.
        head: of the answer.
    """

    def __init__(self, path: str, head: Head) -> None:
        headers = Headers(raw=list(head.headers))
        self.streams = headers.get("content-type", "").startswith("text/event-stream")
        self._path = path
        self._request_id = headers.get(HEADERS[0], "")
        self._first: bytes = b""
        self._last_number = -1

    def note(self, piece: bytes) -> None:
        """``piece`` was sent: whole events."""
        if self._path != RESPONSES or not self.streams:
            return
        if not self._first:
            self._first = piece[:_LONGEST].partition(b"\n\n")[0]
        numbers = _NUMBER.findall(piece[-4096:]) or _NUMBER.findall(piece)
        if numbers:
            self._last_number = int(numbers[-1])

    def ending(self, error: ApiError) -> bytes:
        """Events that say that no more comes, and the end of the stream."""
        if self._path == PATH:
            return event(told_at(self._path, error, self._request_id), "error")
        if self._path == RESPONSES:
            return self._response_failed(error)
        return event(error.envelope()) + b"data: [DONE]\n\n"

    def _response_failed(self, error: ApiError) -> bytes:
        ended = {**error_json(error), "sequence_number": self._last_number + 1}
        response = failed_json(self._begun(), error)
        failed = {"type": "response.failed", "response": response, "sequence_number": self._last_number + 2}
        return event(ended, "error") + event(failed, "response.failed")

    def _begun(self) -> dict[str, Any]:
        """The response as its first event had it."""
        data = next((line[6:] for line in self._first.split(b"\n") if line.startswith(b"data: ")), b"")
        try:
            response = json.loads(data)["response"]
        except (ValueError, KeyError, TypeError):
            return {"object": "response"}
        return response if isinstance(response, dict) else {"object": "response"}
