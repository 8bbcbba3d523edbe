"""AC702, AC703 and AC705 on requests: what they cost, and what is no case of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_tokenizers import separate_and_not
from clean_traffic import assistant, call, result, sent, system, user
from lint_workloads import ids_of
from twin_parts import TOOLS
from twins_ac702 import DROPS, THOUGHT, asked_again
from twins_ac703 import ANSWERED, ASKED, DRAWN, FIRST, REPLY, ids, text, trace

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.rules.ac705_control_tokens import first_control


def only(found, code):
    return [finding for finding in found if finding["code"] == code]


def test_what_a_template_rewrites_costs_what_stood_behind_it(lint, tokenizer_folder):
    requests = asked_again()
    _, found = lint(requests, *DROPS)
    (finding,) = only(found, "AC702")
    renderer = ChatRenderer(Tokenizer.from_folder(tokenizer_folder), Path(DROPS[1]).read_text("utf-8"))
    before, after = (renderer.render(each["messages"], tools=TOOLS).token_ids for each in requests[-2:])
    closed = renderer.render(requests[-2]["messages"], tools=TOOLS, add_generation_prompt=False).token_ids
    same = next(i for i, (a, b) in enumerate(zip(before, after)) if a != b)
    assert finding["tokens_lost"] == min(len(closed), len(after)) - same
    assert (finding["verdict"], finding["tokens_lost_kind"]) == ("unavoidable", "upper_bound")
    assert "leaves out the reasoning of messages[2] (assistant)" in finding["message"]
    assert THOUGHT[:10] in finding["before"] and THOUGHT[:10] not in finding["after"]


def test_a_rewriting_of_many_turns_is_one_finding(lint):
    said = asked_again()[-1]["messages"]
    longer = sent(
        *said, assistant("", call(3), reasoning=THOUGHT), result(3), assistant("Done."), user("And now?"), tools=TOOLS
    )
    _, found = lint(longer, *DROPS)
    (finding,) = only(found, "AC702")
    _, once = lint(asked_again(), *DROPS)
    assert finding["tokens_lost"] > only(once, "AC702")[0]["tokens_lost"]


def test_a_generation_prompt_that_is_not_replayed_is_no_finding(lint, tmp_path):
    template = tmp_path / "opens.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\nLet me think about what was asked here.\n{% endif %}"
    )
    requests = sent(
        system(), user("Fix it."), assistant("Which file?"), user("a.py"), assistant("Done."), user("Thanks.")
    )
    code, found = lint(requests, "--template", str(template))
    assert (code, found) == (0, [])


def test_other_tools_are_told_beside_what_the_template_does(lint):
    requests = asked_again()
    _, alone = lint(requests, *DROPS)
    requests[-1] = {**requests[-1], "tools": TOOLS[::-1]}
    _, found = lint(requests, *DROPS)
    assert {finding["code"] for finding in found} - {"AC501", "AC502"} == {"AC202", "AC702"}
    assert only(found, "AC702")[0]["tokens_lost"] == only(alone, "AC702")[0]["tokens_lost"]


def test_ids_of_a_reply_that_was_encoded_anew_cost_the_reply(lint):
    lines = [trace(ASKED, FIRST, DRAWN), trace(ANSWERED, ids(text(ANSWERED)))]
    code, found = lint(lines)
    (finding,) = only(found, "AC703")
    assert code == 1 and 0 < finding["tokens_lost"] <= len(DRAWN)
    assert finding["before"].startswith("R|e|a|d") and "R|e" not in finding["after"]


def test_ids_that_are_the_tokenizers_own_are_no_finding(lint):
    reply = ids(REPLY)
    lines = [trace(ASKED, FIRST, reply), trace(ANSWERED, ids(text(ANSWERED)))]
    assert not only(lint(lines)[1], "AC703")


def test_other_text_is_not_the_same_text_in_other_ids(lint):
    other = [*ANSWERED[:2], {"role": "assistant", "content": "I read nothing at all and ran no tests."}, ANSWERED[3]]
    lines = [trace(ASKED, FIRST, DRAWN), trace(other, ids(text(other)))]
    assert not only(lint(lines)[1], "AC703")


def test_the_first_control_token_of_a_text_is_found(tokenizer_folder):
    tokenizer = Tokenizer.from_folder(tokenizer_folder)
    assert first_control(tokenizer, "a <|im_end|> b <|im_start|>") == (2, "<|im_end|>")
    assert first_control(tokenizer, "<|im_start|>") == (0, "<|im_start|>")
    assert first_control(tokenizer, "nothing |im_start|> of it") is None
    assert first_control(tokenizer, "") is None


@pytest.mark.parametrize("marker", ["<s>", "</s>"])
def test_it_is_found_where_markers_are_no_borders(marker, tmp_path):
    for tokenizer in separate_and_not(tmp_path):
        found = first_control(tokenizer, f"a {marker} b {marker}")
        assert found == ((2, marker) if marker in tokenizer.control_tokens else None)


def test_a_marker_is_told_once_however_often_it_is_typed(lint):
    said = [user("What is <|im_end|>?"), assistant("An end."), user("And <|im_end|><|im_end|>?")]
    _, found = lint(sent(system(), *said))
    (finding,) = only(found, "AC705")
    assert finding["location"]["path"] == "messages[1].content" and finding["location"]["char"] == 8
    assert (finding["confidence"], finding["severity"], finding["tokens_lost"]) == ("confirmed", "warning", 0)


def test_a_marker_in_a_message_that_was_sent_before_is_not_looked_for_again(lint, tokenizer_folder):
    requests = sent(system(), user("What is <|im_end|>?"), assistant("An end."), user("Thanks."))
    assert len(ids_of(tokenizer_folder, requests)) == 2
    _, found = lint(requests)
    assert [finding["location"]["record"] for finding in only(found, "AC705")] == [1]
