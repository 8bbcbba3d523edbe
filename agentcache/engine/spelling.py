"""The text of outputs whose sequences do not need it to know when they end: made by their reader, not by the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentcache.chat.detokenizer import TextStream
from agentcache.request import FinishReason, Output


class Spelling:
    """Makes the text of one request's outputs; each sequence's must come in order.

    Args:
        make_text: an incremental detokeniser without stop strings; called once a sequence.
    """

    def __init__(self, make_text: Callable[[], TextStream]) -> None:
        self._make_text = make_text
        self._streams: dict[int, TextStream] = {}

    def spell(self, output: Output) -> Output:
        """``output`` with the text that its tokens add.  What was held back comes with the end, unless it was broken off."""
        if output.spelled:
            return output
        stream = self._streams.get(output.index)
        if stream is None:
            stream = self._streams[output.index] = self._make_text()
        text = "".join([stream.push(token).text for token in output.token_ids])
        if output.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            text += stream.flush()
        if output.finish_reason is not None:
            return replace(output, text=text, spelled=True)
        figures = output.prompt_logprobs
        return Output(output.index, text, output.token_ids, output.logprobs, prompt_logprobs=figures)
