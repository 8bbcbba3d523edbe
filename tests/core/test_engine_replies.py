"""How a reply ends, and what is told of its tokens."""

import pytest
from replay import PlainText, continuation
from test_engine import EOS, ask, make_engine, prompt_of, run

from agentcache.engine.spelling import Spelling
from agentcache.request import FinishReason


def test_an_end_token_ends_unless_it_is_ignored_and_is_counted_but_not_shown():
    prompt = next(p for p in (prompt_of(5, n) for n in range(10_000)) if continuation(p, 4)[2] == EOS)
    engine = make_engine(eos=[EOS])
    ended = ask(engine, "a", prompt)
    ignored = ask(engine, "b", prompt, ignore_eos=True)
    run(engine)
    assert ended.tokens() == continuation(prompt, 2)
    assert ended.finished().finish_reason is FinishReason.STOP
    assert ended.finished().report.completion_tokens == 3
    assert ignored.tokens() == continuation(prompt, 8)


def test_a_stop_string_ends_a_sequence():
    prompt = prompt_of(5)
    said = continuation(prompt, 8)
    engine = make_engine()
    sink = ask(engine, "a", prompt, stop=(f"<{said[3]}>",))
    run(engine)
    assert sink.finished().finish_reason is FinishReason.STOP
    assert sink.finished().stop_reason == f"<{said[3]}>"
    assert len(sink.tokens()) == 1 + said.index(said[3])


def test_a_stop_token_ends_a_sequence_and_is_named_as_the_reason():
    prompt = prompt_of(5)
    said = continuation(prompt, 8)
    engine = make_engine(eos=[said[5]])
    sink = ask(engine, "a", prompt, stop_token_ids=frozenset({said[3]}))
    run(engine)
    final = sink.finished()
    assert (final.finish_reason, final.stop_reason) == (FinishReason.STOP, said[3])
    assert sink.tokens() == said[: said.index(said[3])]
    other = ask(engine, "b", prompt)
    run(engine)
    assert (other.finished().finish_reason, other.finished().stop_reason) == (FinishReason.STOP, None)


class HoldingBack(PlainText):
    """Says each token when the next one comes."""

    held = ""

    def push(self, token):
        delta = super().push(token)
        before, self.held = self.held, delta.text
        return delta._replace(text=before)

    def flush(self):
        held, self.held = self.held, ""
        return held


@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("stop", [(), ("never said",)])
def test_text_that_was_held_back_comes_with_the_end(eos, stop):
    prompt = prompt_of(5)
    said = continuation(prompt, 8)
    assert said[4] not in said[:4]
    engine = make_engine(eos=[said[4]] if eos else [])
    engine.make_text = HoldingBack
    sink = ask(engine, "a", prompt, stop=stop)
    run(engine)
    shown = said[:4] if eos else said
    spelling = Spelling(HoldingBack)
    outputs = [spelling.spell(output) for output in sink.outputs]
    assert "".join(output.text for output in outputs) == "".join(f"<{token}>" for token in shown)
    assert all(output.spelled for output in outputs)


def test_the_engine_makes_text_only_where_text_decides_when_a_sequence_ends():
    made = []

    def make_text(stop, shown):
        made.append(stop)
        return PlainText(stop)

    engine = make_engine()
    engine.make_text = make_text
    plain, stopped = ask(engine, "a", prompt_of(5), n=2), ask(engine, "b", prompt_of(6), stop=("never said",))
    run(engine)
    assert made == [("never said",)]
    assert not any(output.text or output.spelled for output in plain.outputs)
    assert "".join(o.text for o in stopped.outputs) == "".join(f"<{t}>" for t in continuation(prompt_of(6), 8))


def test_log_probabilities_come_with_every_token_or_not_at_all():
    engine = make_engine()
    sinks = [ask(engine, str(asked), prompt_of(5), logprobs=asked) for asked in (None, 0)]
    run(engine)
    without, chosen = ([entry.token for o in sink.outputs for entry in o.logprobs] for sink in sinks)
    assert without == []
    assert chosen == continuation(prompt_of(5), 8)


@pytest.mark.parametrize("warm", [False, True])
def test_prompt_figures_cover_the_whole_prompt_whatever_is_cached(warm):
    engine = make_engine(budget=8)
    prompt = prompt_of(21)
    if warm:
        ask(engine, "warm", prompt)
        run(engine)
    sink = ask(engine, "a", prompt, prompt_logprobs=0, max_tokens=3)
    run(engine)
    figures = [o.prompt_logprobs for o in sink.outputs if o.prompt_logprobs is not None]
    assert len(figures) == 1
    assert figures[0][0] is None
    assert [entry.token for entry in figures[0][1:]] == prompt[1:]
