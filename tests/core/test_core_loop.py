"""The engine's thread and the streams that come out of it, with the model without arithmetic."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from replay import continuation
from test_engine import make_engine, prompt_of

from agentcache.engine.loop import AsyncEngine
from agentcache.engine.streams import OutputStream
from agentcache.errors import EngineFailingError, EngineStoppedError, InvariantError, QueueFullError
from agentcache.request import FinishReason, Output, SamplingParams, TokenLogprob

DEADLINE = 10


def make_async(waiting=100, **options) -> AsyncEngine:
    core = make_engine(pages=64, waiting=waiting, **options)
    return AsyncEngine(
        core,
        info=SimpleNamespace(),
        settings=SimpleNamespace(max_waiting=waiting),
        tokenizer=None,
        renderer=None,
        root_base=(),
    )


def submit(engine: AsyncEngine, name: str, prompt, **params) -> OutputStream:
    params = {"temperature": 0.0, "max_tokens": 8} | params
    return engine.submit(prompt, SamplingParams(**params), root=b"root", request_id=name)


async def read(stream: OutputStream) -> list[Output]:
    return [output async for output in stream]


def play(scene, engine: AsyncEngine | None = None, **options):
    """Run ``scene(engine)`` on an event loop; nothing in it may wait for ever."""
    engine = engine or make_async(**options)

    async def whole():
        engine.start()
        try:
            return await asyncio.wait_for(scene(engine), DEADLINE)
        finally:
            await asyncio.wait_for(engine.stop(), DEADLINE)

    return asyncio.run(whole())


def tokens(outputs: list[Output], index: int = 0) -> list[int]:
    return [token for output in outputs if output.index == index for token in output.token_ids]


class Gate:
    """A runner that waits inside each step until that is allowed."""

    def __init__(self, runner) -> None:
        self.runner = runner
        self.entered = threading.Event()
        self._steps = threading.Semaphore(0)

    def allow(self, steps: int) -> None:
        self._steps.release(steps)

    def run(self, plan):
        self.entered.set()
        assert self._steps.acquire(timeout=DEADLINE)
        return self.runner.run(plan)


def gated(**options) -> tuple[AsyncEngine, Gate]:
    engine = make_async(**options)
    engine._core.runner = gate = Gate(engine._core.runner)
    return engine, gate


async def entered(gate: Gate) -> None:
    while not gate.entered.is_set():
        await asyncio.sleep(0.001)


def test_streams_bring_what_each_request_would_get_alone():
    async def scene(engine):
        prompts = [prompt_of(5 + n, n) for n in range(6)]
        replies = await asyncio.gather(*(read(submit(engine, str(n), p)) for n, p in enumerate(prompts)))
        assert [tokens(reply) for reply in replies] == [continuation(p, 8) for p in prompts]
        assert await engine.check() == []
        assert engine.stats().running == engine.stats().waiting == 0

    play(scene)


def test_a_slow_reader_gets_fewer_outputs_and_loses_nothing():
    async def scene(engine):
        prompt = prompt_of(6)
        stream = submit(engine, "a", prompt, n=2, logprobs=0, prompt_logprobs=0)
        while engine.stats().finished.get("length", 0) < 2:
            await asyncio.sleep(0.005)
        await engine.check()  # by now all outputs have come to this loop
        outputs = await read(stream)
        assert [output.index for output in outputs] == [0, 1]
        for output in outputs:
            assert list(output.token_ids) == [entry.token for entry in output.logprobs] == continuation(prompt, 8)
            assert output.text == "".join(f"<{token}>" for token in output.token_ids)
            assert [entry and entry.token for entry in output.prompt_logprobs] == [None, *prompt[1:]]
            assert output.finish_reason is FinishReason.LENGTH and output.report.completion_tokens == 8

    play(scene)


def test_outputs_that_wait_are_merged_in_order_of_arrival():
    stream = OutputStream(2, lambda: None)
    figures = (None, TokenLogprob(3, -1.0))
    stream.push(Output(1, "b", (1,), (TokenLogprob(1, -1.0),), prompt_logprobs=figures))
    stream.push(Output(0, "x", (9,)))
    stream.push(Output(1, "c", (2,), (TokenLogprob(2, -2.0),)))
    stream.push(Output(1, "d", (), finish_reason=FinishReason.STOP, stop_reason="!"))
    stream.push(Output(0, "", finish_reason=FinishReason.ERROR, error="why"))
    first, second = asyncio.run(read(stream))
    assert (first.index, first.text, first.token_ids, first.prompt_logprobs) == (1, "bcd", (1, 2), figures)
    assert [entry.token for entry in first.logprobs] == [1, 2]
    assert (first.finish_reason, first.stop_reason) == (FinishReason.STOP, "!")
    assert (second.text, second.token_ids, second.error) == ("x", (9,), "why")


def test_two_readers_of_one_stream_share_its_outputs_and_both_end():
    async def scene(engine):
        prompt = prompt_of(6)
        stream = submit(engine, "a", prompt)
        halves = await asyncio.gather(read(stream), read(stream))
        assert sorted(token for half in halves for token in tokens(half)) == sorted(continuation(prompt, 8))

    play(scene)


def test_leaving_a_stream_early_aborts_and_leaving_it_late_does_nothing():
    aborted = []
    stream = OutputStream(1, lambda: aborted.append(1))
    stream.push(Output(0, "", finish_reason=FinishReason.STOP))
    assert len(asyncio.run(read(stream))) == 1
    stream.abort()
    assert aborted == []
    engine, gate = gated()

    async def scene(engine):
        gate.allow(1)
        async with submit(engine, "a", prompt_of(6), max_tokens=None) as stream:
            async for _ in stream:
                break
        gate.allow(1)  # the step that it was left in is the last one
        assert (await read(stream))[-1].finish_reason is FinishReason.ABORT
        stream.abort()
        assert engine.stats().live_pages == 0

    play(scene, engine)


def test_what_is_submitted_during_the_last_step_still_ends():
    engine, gate = gated()

    async def scene(engine):
        first = submit(engine, "first", prompt_of(6))
        await entered(gate)
        stopping = asyncio.ensure_future(engine.stop())
        await asyncio.sleep(0)
        second = submit(engine, "second", prompt_of(7))
        looking = asyncio.ensure_future(engine.check())
        await asyncio.sleep(0)
        gate.allow(1000)
        for stream in (first, second):
            last = (await read(stream))[-1]
            assert last.finish_reason is FinishReason.ERROR and last.error == "the server is shutting down"
        assert await looking == []
        await stopping
        assert engine._core.manager.counts().live == 0

    play(scene, engine)


def test_a_stopped_engine_refuses_instead_of_keeping_callers_waiting():
    async def scene(engine):
        await engine.stop()
        with pytest.raises(EngineStoppedError, match="shutting down"):
            submit(engine, "late", prompt_of(6))
        for call in (engine.check, engine.flush):
            with pytest.raises(EngineStoppedError):
                await call()
        assert engine.healthy() == (False, "shutting down")

    play(scene)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_thread_dies_everybody_is_told_and_nobody_new_waits():
    async def scene(engine):
        def broken(_plan):
            raise InvariantError("for this test")

        engine._core.scheduler.commit = broken
        streams = [submit(engine, str(n), prompt_of(6, n), n=2) for n in range(3)]
        for stream in streams:
            last = await read(stream)
            assert {output.finish_reason for output in last} == {FinishReason.ERROR} and len(last) == 2
        while engine._thread.is_alive():
            await asyncio.sleep(0.001)
        assert engine.healthy() == (False, "the engine stopped after an internal error")
        with pytest.raises(EngineStoppedError, match="stopped"):
            submit(engine, "late", prompt_of(6))

    play(scene)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_cannot_even_give_pages_back_still_tells_everybody():
    async def scene(engine):
        def broken(*_):
            raise InvariantError("for this test")

        engine._core.scheduler.commit = engine._core.manager._release = broken
        streams = [submit(engine, str(n), prompt_of(6, n), n=2) for n in range(3)]
        for stream in streams:
            assert [output.finish_reason for output in await read(stream)] == [FinishReason.ERROR] * 2

    play(scene)


def test_a_request_that_cannot_be_taken_in_ends_alone():
    async def scene(engine):
        make_text = engine._core.make_text

        def broken(stop, shown):
            if stop == ("break",):
                raise OverflowError("for this test")
            return make_text(stop, shown)

        engine._core.make_text = broken
        bad, good = submit(engine, "bad", prompt_of(6), n=2, stop=("break",)), submit(engine, "good", prompt_of(6))
        outputs = await read(bad)
        assert [output.finish_reason for output in outputs] == [FinishReason.ERROR] * 2
        assert "OverflowError" not in outputs[0].error and "for this test" not in outputs[0].error
        assert tokens(await read(good)) == continuation(prompt_of(6), 8)
        assert engine._queued == 0

    play(scene)


def test_a_loop_that_was_closed_meanwhile_does_not_end_the_engine():
    engine, gate = gated()
    engine.start()

    async def leave():
        submit(engine, "a", prompt_of(6))
        await entered(gate)
        looking = asyncio.ensure_future(engine.check())
        await asyncio.sleep(0)
        looking.cancel()

    asyncio.run(leave())
    gate.allow(1000)

    async def come_back():
        assert tokens(await asyncio.wait_for(read(submit(engine, "b", prompt_of(7))), DEADLINE)) == continuation(
            prompt_of(7), 8
        )
        assert await engine.check() == []
        await engine.stop()

    asyncio.run(come_back())


def test_a_burst_cannot_slip_past_the_queue_limit_and_places_come_back():
    engine, gate = gated(waiting=3)

    async def scene(engine):
        running = submit(engine, "running", prompt_of(6))
        await entered(gate)
        waiting = [submit(engine, str(n), prompt_of(6, n)) for n in range(3)]
        with pytest.raises(QueueFullError, match="3 requests wait"):
            submit(engine, "x", prompt_of(6))
        gate.allow(1000)
        for stream in (running, *waiting):
            assert (await read(stream))[-1].finish_reason is FinishReason.LENGTH
        for n in range(7):
            assert tokens(await read(submit(engine, f"again {n}", prompt_of(6)))) == continuation(prompt_of(6), 8)

    play(scene, engine)


def test_failed_steps_in_a_row_close_the_engine_until_a_probe_succeeds():
    async def scene(engine):
        for n in range(5):
            assert engine.healthy()[0]
            await engine.inject_fault("forward", 1)
            assert (await read(submit(engine, f"bad {n}", prompt_of(6))))[-1].finish_reason is FinishReason.ERROR
        assert engine.healthy() == (False, "the last 5 steps failed")
        with pytest.raises(EngineFailingError, match="the last 5 steps failed; try again later") as caught:
            submit(engine, "refused", prompt_of(6))
        assert caught.value.retry_after_s == 1
        await engine.advance_clock(1)  # nobody asks for anything: the engine finds out by itself
        while not engine.healthy()[0]:
            await asyncio.sleep(0.005)
        assert tokens(await read(submit(engine, "good", prompt_of(6)))) == continuation(prompt_of(6), 8)
        for n in range(2):
            await engine.inject_fault("forward", 1)
            await read(submit(engine, f"bad again {n}", prompt_of(6)))
        assert engine.healthy()[0]
        assert await engine.check() == []

    play(scene)


def test_a_full_queue_says_when_there_will_be_places_at_the_pace_of_late():
    engine, gate = gated(waiting=10)

    async def scene(engine):
        for n in range(3):
            gate.allow(1)
            await read(submit(engine, f"done {n}", prompt_of(6), max_tokens=1))
            await engine.advance_clock(20)
        gate.entered.clear()
        submit(engine, "running", prompt_of(6))
        await entered(gate)
        for n in range(10):
            submit(engine, str(n), prompt_of(6, n))
        with pytest.raises(QueueFullError) as caught:
            submit(engine, "x", prompt_of(6))
        assert 10 <= caught.value.retry_after_s <= 30  # a tenth of ten places, at one in about 15 to 20 s
        gate.allow(1000)

    play(scene, engine)


def test_an_idle_engine_does_not_spin():
    engine = make_async()
    steps = []
    step = engine._core.step
    engine._step = lambda: (steps.append(1), step())[1]

    async def scene(engine):
        await asyncio.sleep(0.1)
        assert len(steps) <= 2

    play(scene, engine)


def test_a_broken_index_is_found_at_rest_and_made_anew_and_requests_go_on(monkeypatch, caplog):
    monkeypatch.setattr("agentcache.engine.loop._CHECK_AFTER_S", 0.05)
    engine = make_async()

    async def scene(engine):
        prompt = prompt_of(12)
        await read(submit(engine, "a", prompt))
        assert engine.stats().cached_pages > 0
        engine._core.manager.tree.num_live += 1  # what a bug would do
        while not engine.stats().counters.get("index_rebuilds"):
            await asyncio.sleep(0.01)
        assert await engine.check() == []
        assert engine.stats().free_pages == engine.stats().total_pages
        assert tokens(await read(submit(engine, "b", prompt))) == continuation(prompt, 8)

    play(scene, engine)
    assert "an invariant is broken" in caplog.text


def test_pins_end_on_time_although_nobody_asks_for_anything():
    engine = make_async()

    async def scene(engine):
        prompt = prompt_of(12)
        await read(submit(engine, "a", prompt))
        pin = await engine.pin(prompt, b"root", 0.1)
        assert pin.pages == 3 and engine.stats().pinned_pages == 3
        while engine.stats().pinned_pages:
            await asyncio.sleep(0.01)
        pin = await engine.pin(prompt, b"root", 1000)
        await engine.advance_clock(1001)
        assert engine.stats().pinned_pages == 0
        engine.unpin(pin)
        assert await engine.pin([1, 2, 3], b"nobody", 5) is None

    play(scene, engine)
