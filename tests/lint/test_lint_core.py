"""What the linter's rules stand on: which messages two histories have in common, which requests begin alike, what an index
that is full lets go."""

from __future__ import annotations

from itertools import count

import pytest
from clean_traffic import assistant, system, user
from hypothesis import given, settings
from hypothesis import strategies as st
from lint_workloads import INSTRUCTIONS, chat

from agentcache.cache.hashing import namespace_root
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.alignment import align
from agentcache.lint.families import Families, sketch_of
from agentcache.lint.linter import Linter
from agentcache.lint.parting import part
from agentcache.lint.prefix_index import PrefixIndex
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.records import Record, Reply
from agentcache.lint.rules import select_rules

PAGE = 16


@pytest.fixture(scope="module")
def maker(tokenizer_folder) -> PromptMaker:
    return PromptMaker(ChatRenderer(Tokenizer.from_folder(tokenizer_folder)), PAGE)


def prompt(maker, *messages, line=1, **fields):
    return maker.make(Record("run.jsonl", line, {"messages": list(messages), **fields}))


A, B, C, D, E = (user(f"Message {letter} of the conversation.") for letter in "ABCDE")
REPLY = assistant("A reply.")


@pytest.mark.parametrize(
    ("earlier", "later", "at", "gone", "new", "again"),
    [
        ([A, B], [A, B, C], 2, 0, 0, 0),
        ([A, B, C], [A, B], 2, 0, 0, 0),
        ([A, B, C], [A, C], 1, 1, 0, 1),
        ([A, B, C, D], [A, D, E], 1, 2, 0, 1),
        ([A, C, D], [A, B, C, D], 1, 0, 1, 2),
        ([A, B, C, D], [A, E, C, D], 1, 1, 1, 2),
        ([A, B, C, D], [A, E, D], 1, 2, 1, 1),
        ([A, B], [A, C], 1, 1, 1, 0),
        ([A, B, C], [B, C], 0, 1, 0, 2),
    ],
)
def test_histories_are_aligned(maker, earlier, later, at, gone, new, again):
    found = align(prompt(maker, *earlier), prompt(maker, *later))
    assert (found.at, found.gone, found.new, found.again) == (at, gone, new, again)
    assert bool(found.again_chars) == bool(again)
    assert found.appends_only == (not gone and not new)


def test_histories_meet_where_a_reply_comes_again(maker):
    edited = prompt(maker, system("x"), B, REPLY, C)
    assert align(prompt(maker, system("x"), A, REPLY, C), edited).meets
    assert not align(prompt(maker, system("x"), A, C), prompt(maker, system("x"), B, C)).meets


def test_a_message_that_stands_further_behind_has_moved(maker):
    assert align(prompt(maker, A, B, C), prompt(maker, B, A, C)).moved
    assert not align(prompt(maker, A, B, C), prompt(maker, D, B, C)).moved


def test_a_parting_knows_what_is_the_same_behind_it(maker):
    earlier, later = (prompt(maker, system(f"Run {n}. {INSTRUCTIONS}"), A) for n in ("7f3a", "91bc"))
    parting = part(earlier, later, None)
    assert parting.before[: parting.offset] == "Run " == parting.after[: parting.offset]
    assert parting.behind == len(parting.after) - len("Run 91bc")
    assert not part(earlier, earlier, None)


def test_other_names_of_the_cache_part_before_the_first_token(maker):
    parting = part(prompt(maker, A, model="a"), prompt(maker, A, model="b"), 0)
    assert (parting.char, parting.token, parting.settings_changed) == (0, 0, ("model",))
    assert parting.leaf is None and parting.before is None


def test_ids_that_were_recorded_are_the_truth(maker):
    """A reply that was drawn as other tokens than its text is cut into."""
    first = prompt(maker, system(INSTRUCTIONS), A)
    ids = first.tokens[0 : len(first.tokens)]
    drawn = maker.tokenizer.encode("R") + maker.tokenizer.encode("e") + maker.tokenizer.encode("ad it.")
    recorded = Record("run.jsonl", 1, first.record.body, prompt_ids=ids, reply=Reply(assistant("Read it."), drawn))
    answer = maker.answer(maker.make(recorded))
    assert answer.tokens[0 : len(answer.tokens)] == ids + drawn
    assert answer.text.startswith(first.text + "Read it.")
    assert maker.make(recorded).start_of(5) == first.start_of(5)


def test_a_raw_prompt_is_tokenised_as_it_stands(maker):
    raw = maker.make(Record("run.jsonl", 1, {"prompt": INSTRUCTIONS}))
    assert raw.text == INSTRUCTIONS and [leaf.keys for leaf in raw.leaves] == [("prompt",)]
    assert raw.tokens[0 : len(raw.tokens)] == maker.tokenizer.encode_prompt(INSTRUCTIONS)


# -- requests that begin alike ------------------------------------------------------------------------------------


def test_beginnings_that_differ_in_one_piece_are_alike():
    families = Families()
    families.add(sketch_of(f"Session 7f3a1. {INSTRUCTIONS}"), 0)
    families.add(
        sketch_of("An agent of another kind. It answers in rhymes. It never reads files. It likes the sea."), 1
    )
    assert families.find(sketch_of(f"Session 91bc4. {INSTRUCTIONS}"), 2) == [0]
    assert families.find(sketch_of("Nothing in common with anything. Neither here nor there."), 2) == []
    assert families.find(sketch_of(f"Session 7f3a1. {INSTRUCTIONS}"), 0) == []


def test_sketches_of_any_text_are_bounded():
    assert len(sketch_of("\n".join(f"line {n} of the text" for n in range(10_000)))) <= 64
    assert sketch_of("") == frozenset()


# -- bounds -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=1, max_size=30), st.integers(8, 64))
def test_a_full_index_forgets_the_oldest_and_stays_whole(prompts, most):
    index = PrefixIndex(4, most)
    everything = PrefixIndex(4)
    for owner, ids in enumerate(prompts):
        tokens = PagedTokens(ids, 4, namespace_root())
        assert index.match(tokens).tokens <= everything.match(tokens).tokens
        index.publish(tokens, owner)
        everything.publish(tokens, owner)
        assert len(index._tree) <= max(1, most // 4)
        assert index._tree.check() == []
    if not index.forgotten:
        assert len(index._tree) == len(everything._tree)


def test_what_was_used_last_is_kept(maker):
    index = PrefixIndex(PAGE, 40 * PAGE)
    often = PagedTokens(range(10 * PAGE), PAGE, namespace_root())
    for number in range(30):
        index.publish(
            PagedTokens(range(1000 * number + 1000, 1000 * number + 1000 + 10 * PAGE), PAGE, namespace_root()), 1
        )
        index.publish(often, 0)
    assert index.forgotten and index.match(often).tokens == len(often) - 1


def test_a_long_workload_is_held_in_bounded_memory(maker):
    linter = Linter(maker, select_rules((), ()), PAGE, keep_requests=False, max_tokens=4_000)
    numbers = count()
    for _ in range(60):
        for body in chat(lambda turn: f"{INSTRUCTIONS} {next(numbers)}", turns=2, task=f"Task {next(numbers)}."):
            linter.add(Record("run.jsonl", next(numbers), body))
    report = linter.report()
    assert report.count == 120 and report.requests == []
    assert report.shares[0].forgotten_pages > 0


def test_several_page_sizes_are_counted_in_one_run(maker):
    sizes = (PAGE, 8, 64)
    linter = Linter(maker, select_rules((), ()), sizes)
    linter.add_all(Record("run.jsonl", line, body) for line, body in enumerate(chat(lambda turn: INSTRUCTIONS), 1))
    shares = linter.report().shares
    assert [share.page_size for share in shares] == list(sizes)
    # What is copied out of the next page does not depend on where pages end; what whole pages give does.
    assert len({share.cached_tokens for share in shares}) == 1
    assert shares[1].whole_page_tokens >= shares[0].whole_page_tokens >= shares[2].whole_page_tokens > 0
    assert all(share.whole_page_tokens % share.page_size == 0 for share in shares)


def test_pages_are_cut_once_and_in_one_size(maker):
    with pytest.raises(ValueError, match=r"16.*8"):
        Linter(maker, select_rules((), ()), 8)
