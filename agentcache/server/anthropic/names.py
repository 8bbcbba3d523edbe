"""Places in a translated request, told in the names that its client used.

::

    messages[4].content                       ->  messages[2].content[1]
    tools[0].function.parameters              ->  tools[0].input_schema
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentcache.dialects.anthropic.blocks import Placed
from agentcache.errors import RequestError
from agentcache.server.errors import ApiError, from_runtime
from agentcache.server.findings.renaming import renamed

_MESSAGE = re.compile(r"messages\[(\d+)\](?:\.(?:content|tool_calls)\b)?")
_RENAMED: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(old), new)
    for old, new in (
        (r"response_format(?:\.json_schema)?(?:\.schema)?", "output_config.format"),
        (r"tools\[(\d+)\]\.function\.parameters", r"tools[\1].input_schema"),
        (r"tools\[(\d+)\]\.function\.", r"tools[\1]."),
        (r"\bparallel_tool_calls\b", "tool_choice.disable_parallel_tool_use"),
        (r"\bmax_completion_tokens\b", "max_tokens"),
        (r"^stop\b", "stop_sequences"),
        (r'"required"', '"any"'),
    )
)
TOO_LONG = "context_length_exceeded"


class Names:
    """
    Args:
        placed: the translated messages.
    """

    def __init__(self, placed: Sequence[Placed]) -> None:
        self._placed = placed

    def told(self, text: str) -> str:
        """``text`` with the client's names for ours."""
        for old, new in _RENAMED:
            text = old.sub(new, text)
        return _MESSAGE.sub(self._place, text)

    def _place(self, found: re.Match[str]) -> str:
        index = int(found[1])
        return self._placed[index].place if index < len(self._placed) else found[0]

    def error(self, error: ApiError) -> ApiError:
        param, message = None if error.param is None else self.told(error.param), self.told(error.message)
        if error.code == TOO_LONG:  # the words by which coding agents know that they have to shorten a conversation
            message = f"prompt is too long: {message}"
        return ApiError(error.status, message, param=param, code=error.code, headers=error.headers)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What is refused inside is refused in the client's names."""
        try:
            yield
        except RequestError as error:
            raise self.error(from_runtime(error)) from error
        except ApiError as error:
            raise self.error(error) from error

    def report(self, report: dict[str, Any]) -> dict[str, Any]:
        """The ``agentcache`` object."""
        if (miss := report.get("miss")) is not None:
            index = miss.get("message_index")
            if index is not None and index < len(self._placed):
                miss = miss | {"message_index": self._placed[index].index}
            report = report | {"miss": miss | {"path": self._path(miss.get("path"))}}
        alignment = report["alignment"]
        points = [point | {"path": self._path(point["path"])} for point in alignment["share_points"]]
        findings = renamed(report["findings"], self.told)
        return report | {"alignment": alignment | {"share_points": points}, "findings": findings}

    def _path(self, path: str | None) -> str | None:
        return None if path is None else self.told(path)
