"""The template check: what each habit of a template costs, where it stands, and which option mends it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from template_shapes import PLAIN, SHAPES, thinking
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers
from twins_ac701 import CHATML, DATED, DEFAULT_DATE

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError, ChatTemplateError
from agentcache.lint.templates import Outcome, Subject, TemplateSource, check_template, find_subject, template_findings
from agentcache.lint.templates.conversations import REASONED, Conversation
from agentcache.lint.templates.survey import Survey
from agentcache.lint.templates.turns import Part
from agentcache.lint.templates.writer import NOW as WHEN
from agentcache.lint.templates.writer import Writer


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer.from_folder(tokenizer_folder)


@pytest.fixture
def check(tokenizer):
    def run(source: str, with_tools: str | None = None):
        tools = None if with_tools is None else TemplateSource("tools.jinja", with_tools)
        plain = TemplateSource("chat.jinja", source)
        return check_template(Subject("chat", plain, tokenizer, "tiny", tools, True, tokenizer.named_tokens))

    return run


def outcomes(report) -> dict[str, Outcome]:
    return {row.question: row.outcome for row in report.rows}


def broken(report) -> set[str]:
    return {row.question for row in report.rows if row.outcome is Outcome.NO}


@pytest.mark.parametrize("name", ["plain", "keeps reasoning"])
def test_a_template_that_only_appends_keeps_everything(check, name):
    report = check(SHAPES[name])
    assert report.keeps and broken(report) == set() and report.findings == ()


def test_a_template_without_reasoning_is_not_asked_for_it(check):
    assert outcomes(check(PLAIN))["reasoning replayed"] is Outcome.NONE


def test_reasoning_left_out_breaks_prompts_with_tools_and_replies_without(check, tokenizer):
    report = check(SHAPES["reasoning of the last question"])
    assert broken(report) == {"reasoning replayed, with tools", "replies as they were generated"}
    prompts, replies = report.findings
    assert (prompts.code, prompts.severity, prompts.verdict) == ("AC702", "warning", "unavoidable")
    source = SHAPES["reasoning of the last question"].splitlines()
    assert "<think>" in source[prompts.location.record - 1]
    decides = next(number for number, line in enumerate(source, 1) if "loop.index0 > ns.last" in line)
    assert f"line {decides} decides" in prompts.help
    assert "messages[2] (assistant) loses its reasoning as soon as a user speaks again" in prompts.message
    assert replies.severity == "info" and "agentcache keeps the replies that it generated" in replies.help


def test_the_loss_is_what_stands_behind_the_place_in_the_earlier_prompt(check, tokenizer):
    source = SHAPES["reasoning of the last question"]
    report = check(source)
    renderer = ChatRenderer(tokenizer, source)
    conversation = REASONED[1]
    costs = []
    for earlier, later in zip(conversation.turns(), conversation.turns()[1:]):
        said = [
            renderer.render(conversation.messages[:count], tools=list(conversation.tools)) for count in (earlier, later)
        ]
        closed = renderer.render(
            conversation.messages[:earlier], tools=list(conversation.tools), add_generation_prompt=False
        ).token_ids
        before, after = (each.token_ids for each in said)
        same = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), len(before))
        costs.append(max(0, len(closed) - same))
    assert report.findings[0].tokens_lost == max(costs) > 100


def test_the_option_that_keeps_reasoning_is_found_by_trying_it(check):
    report = check(SHAPES["an option keeps it"])
    prompts = report.findings[0]
    assert prompts.verdict == "waste" and "set keep_reasoning=true in chat_template_kwargs" in prompts.help


def test_an_option_that_leaves_everything_out_mends_nothing(check):
    source = thinking("not no_reasoning and loop.index0 > ns.last")
    prompts = check(source).findings[0]
    assert prompts.verdict == "unavoidable" and "no_reasoning" not in prompts.help


def test_a_closed_thought_that_is_not_replayed_costs_the_reply(check):
    report = check(SHAPES["closes thinking"])
    assert broken(report) == {"the same, thinking switched off"}
    (finding,) = report.findings
    assert "enable_thinking=false" in finding.message and "generation prompt begins it" in finding.message


def test_what_breaks_only_under_an_option_is_told_in_the_table(check):
    source = PLAIN.replace(
        "{{ message.content }}", "{% if not (terse and not loop.last) %}{{ message.content }}{% endif %}"
    )
    report = check(source)
    assert report.keeps
    assert "but not with terse=true" in next(row.note for row in report.rows if row.question == "with other options")


def test_a_refusal_is_no_break(check):
    refusing = PLAIN.replace(
        "{%- for message in messages %}",
        "{%- for message in messages %}{% if message.role == 'system' and loop.index0 > 0 %}"
        "{{ raise_exception('system text comes first') }}{% endif %}",
    )
    report = check(refusing)
    row = next(row for row in report.rows if row.question == "system text in mid-conversation")
    assert (row.outcome, row.note) == (Outcome.REFUSED, "system text comes first") and report.keeps


def test_a_template_without_system_text_is_tried_without(check):
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system text') }}{% endif %}" + PLAIN
    found = outcomes(check(refusing))
    assert found["system text"] is Outcome.REFUSED and found["tool calls (no system text)"] is Outcome.YES
    assert "tool calls" not in found


def test_a_template_that_refuses_everything_is_an_error(check, tokenizer):
    source = "{% for message in messages %}{{ raise_exception('no') }}{% endfor %}"
    with pytest.raises(AgentCacheError, match="refuses every conversation: no"):
        check(source)
    assert "refuses every conversation: no" in template_findings("chat.jinja", source, tokenizer)[0].message


def test_conversations_with_tools_are_tried_with_the_template_for_tools(check):
    moved = PLAIN.replace(
        "{{ message.content }}", "{{ message.content }}{% if tools and loop.last %} Use tools!{% endif %}"
    )
    report = check(PLAIN, with_tools=moved)
    assert "tools" in broken(report) and "plain chat" not in broken(report)
    assert {finding.location.file for finding in report.findings} == {"tools.jinja"}


def test_a_template_that_always_opens_a_reply_keeps_it(check):
    assert check(PLAIN.replace("{%- if add_generation_prompt %}", "{%- if true %}")).keeps


@pytest.mark.parametrize(
    "form, unit, severity",
    [
        ("%H:%M:%S", "second", "error"), ("%I:%M", "minute", "error"), ("%H h", "hour", "warning"),
        ("%d %b %Y", "day", "warning"), ("%A", "day", "warning"), ("%B %Y", "month", "info"), ("%Y", "year", "info"),
    ],
)  # fmt: skip
def test_a_clock_is_told_with_the_unit_that_shows(check, form, unit, severity):
    (finding,) = check(DATED.replace("%d %B %Y", form) + CHATML).findings
    assert (finding.code, finding.severity, finding.location.record) == ("AC701", severity, 2)
    assert f"every {unit} " in finding.message


def test_a_date_that_can_be_set_says_by_which_option(check):
    (finding,) = check(DEFAULT_DATE + CHATML).findings
    assert finding.location.record == 1 and finding.help.startswith("set date_string='4 March 2026'")


def test_a_border_that_merges_is_a_matter_of_the_tokenizer(check):
    source = PLAIN.replace("<|im_start|>{{ message.role }}\n", "<|im_start|>{{ message.role }}: ").replace(
        "<|im_start|>assistant\n", "<|im_start|>assistant: "
    )
    (finding,) = check(source).findings
    assert finding.code == "AC703" and finding.before == " " and finding.after.startswith(" ")


def test_a_tokenizer_that_changes_a_text_each_time_it_reads_it_is_found(tokenizer_folder, tmp_path):
    backend = Backend.from_file(str(tokenizer_folder / "tokenizer.json"))
    backend.normalizer = normalizers.Replace("  ", " ")
    folder = shutil.copytree(tokenizer_folder, tmp_path / "model")
    backend.save(str(folder / "tokenizer.json"))
    report = check_template(find_subject(str(write(folder / "chat_template.jinja", PLAIN)), None, print))
    (finding,) = report.findings
    assert finding.code == "AC703" and "decoded and encoded again" in finding.message


def test_a_tokenizer_that_composes_characters_keeps_the_ids(tokenizer_folder, tmp_path):
    backend = Backend.from_file(str(tokenizer_folder / "tokenizer.json"))
    backend.normalizer = normalizers.NFC()
    folder = shutil.copytree(tokenizer_folder, tmp_path / "model")
    backend.save(str(folder / "tokenizer.json"))
    report = check_template(find_subject(str(write(folder / "chat_template.jinja", PLAIN)), None, print))
    row = next(row for row in report.rows if row.question == "token ids survive a round trip")
    assert report.keeps and (row.outcome, row.note[:32]) == (Outcome.YES, "the tokenizer changes some text ")


def test_a_foreign_tokenizer_gives_near_figures_and_no_round_trip(tokenizer):
    source = SHAPES["reasoning of the last question"].replace("im_start", "turn")
    subject = Subject(
        "chat", TemplateSource("chat.jinja", source), tokenizer, "tiny", named_tokens=tokenizer.named_tokens
    )
    report = check_template(subject)
    assert report.estimated and {finding.tokens_lost_kind for finding in report.findings} == {"estimate"}
    assert outcomes(report)["token ids survive a round trip"] is Outcome.NONE


def test_a_file_that_is_no_chat_template_has_no_findings(tokenizer):
    assert template_findings("page.j2", "<p>{{ title | unknown_filter }}</p>", tokenizer) == []
    assert template_findings("mail.j2", "Dear {{ name }}, your messages are below.", tokenizer) == []
    summary = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\nSum up what was said above."
    assert template_findings("summary.jinja", summary, tokenizer) == []


def test_a_chat_template_that_does_not_compile_is_unreadable_at_its_line(tokenizer):
    (finding,) = template_findings("chat.jinja", "{% for message in messages %}<|a|>\n{% endfo %}", tokenizer)
    assert (finding.code, finding.location.record) == ("AC903", 2)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("Hello\n{% if x %}", 2, "Unexpected end of template"),
        ("{{ name }", 1, "unexpected '}'"),
        (
            "{% for m in messages %}{{ raise_exception('not today') }}{% endfor %}",
            1,
            "refuses every conversation: not today",
        ),
        ("{% for m in messages %}<|a|>{{ m.content | shout }}{% endfor %}", 1, "No filter named"),
    ],
)
def test_what_no_request_can_be_rendered_with_is_said_wherever_it_was_found(tokenizer, text, line, said):
    for note in (None, [].append):
        (finding,) = template_findings("chat.jinja", text, tokenizer, note)
        assert (finding.code, finding.location.record) == ("AC903", line) and said in finding.message
        assert finding.message.count("line") <= 1 and "template" in finding.help


@pytest.mark.parametrize(
    "text",
    [
        "<p>{{ title }}</p>",
        "{% trans %}Welcome{% endtrans %}",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\nSum up what was said above.",
        "<|system|>{% set messages = [1] %}{{ messages }}",
    ],
)
def test_a_named_file_that_is_no_chat_template_gets_a_note(tokenizer, text):
    said = []
    assert template_findings("page.j2", text, tokenizer, said.append) == []
    (note,) = said
    assert note.startswith("page.j2: ")


def test_a_prompt_with_values_of_its_own_program_is_told_of_where_it_was_named(tokenizer):
    text = "{% for m in messages %}<|{{ m.role }}|>{{ persona.name }}{{ m.content }}{% endfor %}"
    assert template_findings("chat.jinja", text, tokenizer) == []
    assert [finding.code for finding in template_findings("chat.jinja", text, tokenizer, print)] == ["AC903"]


def write(path, text):
    path.write_text(text)
    return path


# -- on templates as they are: the project's own, or those of the folder AGENTCACHE_TEMPLATES

FOLDER = os.environ.get("AGENTCACHE_TEMPLATES")
TEMPLATES = {file.stem: file.read_text("utf-8") for file in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else SHAPES


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_verdict_is_what_a_plain_comparison_of_the_servers_prompts_says(name, tokenizer):
    names = {"bos_token": "<s>", "eos_token": "</s>", **tokenizer.named_tokens}
    writer = Writer(TemplateSource(name, TEMPLATES[name]), names)
    survey = Survey(writer, writer, names)
    for course in survey.prompt_courses():
        prompts = served(course.conversation, TEMPLATES[name], tokenizer, names, course.options)
        assert (prompts is None) == (course.refused is not None)
        if prompts is None:
            continue
        assert [opened for opened, _ in prompts] == list(course.prompts)
        expected = [
            count
            for count, (_, closed), (after, _) in zip(course.conversation.turns(), prompts, prompts[1:])
            if not after.startswith(closed.rstrip())
        ]
        if all(opened.startswith(closed) and opened != closed for opened, closed in prompts):
            assert [rewrite.earlier for rewrite in course.of(Part.PROMPT)] == expected
    last = TEMPLATES[name].count("\n") + 1
    report = check_template(Subject(name, TemplateSource(name, TEMPLATES[name]), tokenizer, "", named_tokens=names))
    assert all(1 <= finding.location.record <= last and finding.tokens_lost > 0 for finding in report.findings)


def served(conversation: Conversation, source: str, tokenizer: Tokenizer, names, options):
    """Each request with and without its generation prompt, as the server renders them; ``None`` where it is refused."""
    known, tokenizer.named_tokens = tokenizer.named_tokens, names
    try:
        renderer = ChatRenderer(tokenizer, source, clock=lambda: WHEN)
        return [
            tuple(
                renderer.render_text(
                    conversation.messages[:count], tools=list(conversation.tools) or None, add_generation_prompt=opened,
                    template_kwargs=options,
                ).text
                for opened in (True, False)
            )
            for count in conversation.turns()
        ]  # fmt: skip
    except ChatTemplateError:
        return None
    finally:
        tokenizer.named_tokens = known
