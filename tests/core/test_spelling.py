"""Text that is made as outputs are read, beside the engine's thread."""

import asyncio
import codecs

from hypothesis import given
from hypothesis import strategies as st
from replay import PlainText, continuation
from test_core_loop import play, read, submit, tokens
from test_engine import prompt_of
from test_engine_replies import HoldingBack

from agentcache.chat.detokenizer import TextDelta
from agentcache.engine.spelling import Spelling
from agentcache.engine.streams import OutputStream
from agentcache.request import FinishReason, Output


def test_text_is_made_as_outputs_are_read_and_what_was_broken_off_gets_no_end():
    def stream_of(*outputs):
        stream = OutputStream(2, lambda: None, Spelling(HoldingBack))
        for output in outputs:
            stream.push(output)
        return stream

    async def one_by_one(reason):
        stream, texts = stream_of(), []
        for output in (Output(0, "", (1,), spelled=False), Output(0, "", (2,), finish_reason=reason, spelled=False)):
            stream.push(output)
            texts.append((await anext(stream)).text)
        return texts

    assert asyncio.run(one_by_one(FinishReason.LENGTH)) == ["", "<1><2>"]
    assert asyncio.run(one_by_one(FinishReason.ABORT)) == ["", "<1>"]
    first, second = asyncio.run(
        read(
            stream_of(
                Output(1, "", (1,), spelled=False),
                Output(0, "", (9,), finish_reason=FinishReason.STOP, spelled=False),
                Output(1, "", (2,), spelled=False),
                Output(1, "", finish_reason=FinishReason.ERROR, error="why"),
            )
        )
    )
    assert (first.index, first.text, first.token_ids, first.error) == (1, "<1>", (1, 2), "why")
    assert (second.index, second.text) == (0, "<9>")


def test_a_token_that_its_reader_cannot_spell_ends_that_request_with_an_error_and_no_other():
    class Stumbling(PlainText):
        def push(self, token):
            if token == 3:
                raise UnicodeError("for this test")
            return super().push(token)

    async def scene(engine):
        engine._core.make_text = Stumbling
        prompts = [prompt_of(6, n) for n in range(12)]
        broken = [n for n, prompt in enumerate(prompts) if 3 in continuation(prompt, 40)]
        assert 0 < len(broken) < 12
        replies = await asyncio.gather(*(read(submit(engine, str(n), p, max_tokens=40)) for n, p in enumerate(prompts)))
        for n, (prompt, reply) in enumerate(zip(prompts, replies)):
            said = continuation(prompt, 40)
            if n in broken:
                assert [output.finish_reason for output in reply if output.finish_reason] == [FinishReason.ERROR]
                assert "text" in reply[-1].error and "for this test" not in reply[-1].error
                said = said[: said.index(3)]
                assert tokens(reply) == said[: len(tokens(reply))]
            else:
                assert tokens(reply) == said
            assert "".join(output.text for output in reply) == "".join(f"<{token}>" for token in tokens(reply))
        await engine.settled()
        assert await engine.check() == []
        assert engine.stats().running == 0 and engine.stats().live_pages == 0

    play(scene)


class BytesAsText:
    """Token ids are bytes of UTF-8."""

    def __init__(self):
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token):
        return TextDelta(self.decoder.decode(bytes([token])), None)

    def flush(self):
        return self.decoder.decode(b"", final=True)


@given(
    ids=st.lists(st.integers(0, 255), max_size=30),
    cuts=st.lists(st.booleans(), min_size=30, max_size=30),
    reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_texts_joined_are_the_text_of_all_tokens_however_slowly_they_are_read(ids, cuts, reason):
    async def scene():
        stream, texts = OutputStream(1, lambda: None, Spelling(BytesAsText)), []
        for token, cut in zip(ids, cuts):
            stream.push(Output(0, "", (token,), spelled=False))
            if cut:
                texts.append((await anext(stream)).text)
        stream.push(Output(0, "", finish_reason=reason, spelled=False))
        texts += [output.text for output in await read(stream)]
        return "".join(texts)

    assert asyncio.run(scene()) == bytes(ids).decode("utf-8", "replace")
