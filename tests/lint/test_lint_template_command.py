"""``agentcache lint template``: what it takes, what it says, and how it ends."""

from __future__ import annotations

import io
import json
import shutil

import pytest
from rich.console import Console
from template_shapes import PLAIN, SHAPES
from twins_ac701 import CHATML, DATED

from agentcache.lint.cli import main
from agentcache.lint.finding import Finding, Location
from agentcache.lint.templates import Outcome, Row, TemplateReport
from agentcache.lint.templates.table import write_full


@pytest.fixture
def template(capsys, tokenizer_folder):
    """``template(argument, *flags)`` -> exit code, standard output, standard error."""

    def run(argument, *flags):
        capsys.readouterr()
        code = main(["template", str(argument), *flags])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def file(tmp_path, tokenizer_folder):
    def write(source, name="chat.jinja"):
        path = tmp_path / name
        path.write_text(source, "utf-8")
        return path

    return write


@pytest.fixture
def folder(tmp_path, tokenizer_folder):
    """A model's folder with the tiny tokenizer."""

    def make(config=None, **files):
        made = tmp_path / "model"
        shutil.copytree(tokenizer_folder, made)
        if config is not None:
            (made / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", **config}))
        for name, text in files.items():
            (made / f"{name}.jinja").write_text(text)
        return made

    return make


def test_a_template_that_keeps_the_cache_gives_0_and_a_table(template, file, tokenizer_folder):
    code, out, _ = template(file(PLAIN), "--tokenizer", str(tokenizer_folder))
    assert code == 0 and "Yes: each request begins with all of the one before it" in out
    assert "parallel calls" in out and " tokens  " not in out


def test_one_that_breaks_it_gives_1_and_says_where_and_what_to_do(template, file, tokenizer_folder):
    path = file(SHAPES["an option keeps it"])
    code, out, _ = template(path, "--tokenizer", str(tokenizer_folder))
    assert code == 1 and f"{path}:8" in out and "keep_reasoning=true" in out and "No: 2 findings" in out


def test_the_table_is_for_pipes_too_and_says_a_note_of_several_rows_once(template, file, tokenizer_folder):
    path = file(SHAPES["reasoning of the last question"])
    _, out, _ = template(path, "--tokenizer", str(tokenizer_folder))
    table = out.split("\n\n")[1]
    rows = table.splitlines()
    assert all(row == row.rstrip() for row in rows) and len(rows) == 15
    marked = [row for row in rows if row.endswith(" tokens  [1]")]
    assert [row.split("  ")[0] for row in marked] == [
        "reasoning replayed, with tools",
        "replies as they were generated",
    ]
    assert out.count("agentcache loses nothing") == 1 and "\n\n[1] agentcache loses nothing\n\n" in out
    assert any(row.endswith("in agentcache; elsewhere <|im_start|>, <|im_end|> become markers") for row in rows)


def test_findings_stand_in_the_order_of_lines_with_what_differs_marked(template, file, tokenizer_folder):
    path = file(SHAPES["closes thinking"] + DATED)
    _, out, _ = template(path, "--tokenizer", str(tokenizer_folder))
    places = [line for line in out.splitlines() if line.startswith("  --> ")]
    assert len(places) > 1 and places == sorted(places, key=lambda place: int(place.rpartition(":")[2]))
    assert "(plain chat; system text; system text in mid-conversation; 5 more; all with enable_thinking=false)" in out
    lines = out.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("   | before ") and "<think></think>" in line)
    before, now, marks = (line.removeprefix("   | ") for line in lines[first : first + 3])
    at = marks.index("^")
    assert before[at:].startswith("<think>") and now[at:].startswith("It happens") and before[9:at] == now[9:at]


def test_one_token_is_one():
    finding = Finding(
        code="AC702",
        name="x",
        severity="info",
        location=Location(file="a"),
        message="m",
        tokens_lost=1,
        tokens_lost_kind="exact",
    )
    report = TemplateReport("a", "", False, (Row("plain chat", Outcome.NO, 1),), (finding,))
    out = io.StringIO()
    write_full(report, Console(file=out, width=40))
    assert out.getvalue().count("1 token") == 2 and "1 tokens" not in out.getvalue()


def test_exit_zero(template, file, tokenizer_folder):
    assert template(file(DATED + CHATML), "--tokenizer", str(tokenizer_folder), "--exit-zero")[0] == 0


def test_json_has_every_property_and_the_findings(template, file, tokenizer_folder):
    code, out, _ = template(file(DATED + CHATML), "--tokenizer", str(tokenizer_folder), "--output-format", "json")
    told = json.loads(out)
    assert code == 1 and told["keeps"] is False and told["estimated"] is False
    clock = next(each for each in told["properties"] if each["property"] == "the same at any time")
    assert clock["outcome"] == "no" and clock["tokens_lost"] == told["findings"][0]["tokens_lost"] > 0
    assert clock["of"] > clock["tokens_lost"] and clock["note"] == "changes every day"
    assert {each["outcome"] for each in told["properties"]} <= {"yes", "no", "refused", None}


def test_concise_is_a_line_a_finding(template, file, tokenizer_folder):
    path = file(DATED + CHATML)
    _, out, _ = template(path, "--tokenizer", str(tokenizer_folder), "--output-format", "concise")
    first, last = out.splitlines()
    assert first.startswith(f"{path}:2: AC701 the template prints the time") and last.startswith("No: 1 finding")


def test_a_models_folder_is_counted_with_its_own_tokenizer(template, folder):
    made = folder(chat_template=DATED + CHATML)
    code, out, _ = template(made, "--output-format", "json")
    told = json.loads(out)
    assert code == 1 and told["estimated"] is False and told["tokenizer"] == str(made)
    assert told["findings"][0]["location"]["file"] == str(made / "chat_template.jinja")


def test_a_file_in_a_models_folder_too(template, folder):
    made = folder(chat_template=PLAIN)
    assert json.loads(template(made / "chat_template.jinja", "--output-format", "json")[1])["tokenizer"] == str(made)


def test_a_template_inside_a_configuration_is_named_as_such(template, folder):
    made = folder({"chat_template": DATED + CHATML})
    for argument in (made, made / "tokenizer_config.json"):
        code, out, _ = template(argument, "--output-format", "json")
        where = json.loads(out)["findings"][0]["location"]
        assert code == 1 and (where["file"], where["path"], where["record"]) == (
            str(made / "tokenizer_config.json"), "chat_template", 2,
        )  # fmt: skip


def test_a_model_with_a_template_for_tools_is_tried_with_both(template, folder):
    moved = PLAIN.replace("{{ message.content }}", "{{ message.content }}{% if loop.last %} Use the tools!{% endif %}")
    entries = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": moved}]
    made = folder({"chat_template": entries})
    for argument in (made, made / "tokenizer_config.json"):
        code, out, _ = template(argument, "--output-format", "json")
        told = json.loads(out)
        assert code == 1 and {each["location"]["path"] for each in told["findings"]} == {"chat_template[tool_use]"}
        assert {each["property"]: each["outcome"] for each in told["properties"]}["plain chat"] == "yes"


def test_a_configuration_away_from_its_model_brings_its_own_names(template, tmp_path, tokenizer_folder):
    path = tmp_path / "tokenizer_config.json"
    path.write_text(
        json.dumps({"bos_token": {"content": "<|im_start|>"}, "chat_template": "{{ bos_token + '' }}" + PLAIN})
    )
    assert template(path, "--tokenizer", str(tokenizer_folder))[0] == 0


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("broken.jinja", "{% for m in messages %}", "line 1"),
        ("page.jinja", "<p>{{ title }}</p>", "expected a chat template"),
        ("bytes.jinja", b"\xff\xfe{{ messages }}", "cannot be read"),
        ("tokenizer_config.json", "{}", "no chat_template"),
        ("tokenizer_config.json", "[1]", "no chat_template"),
        ("tokenizer_config.json", "{", "cannot be read"),
        ("nothing.jinja", None, "no such file"),
        ("empty", None, "no such file"),
    ],
)
def test_what_is_no_template_gives_2_and_a_sentence(template, tmp_path, tokenizer_folder, name, text, said):
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, error = template(path, "--tokenizer", str(tokenizer_folder))
    assert (code, out) == (2, "") and said in error and "Traceback" not in error


def test_a_folder_without_a_template_gives_2(template, tmp_path, tokenizer_folder):
    assert "a folder without" in template(tmp_path, "--tokenizer", str(tokenizer_folder))[2]
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(tokenizer_folder / "tokenizer.json", bare)
    code, _, error = template(bare)
    assert code == 2 and "without a chat template" in error


def test_a_template_among_the_files_is_checked_by_the_linter(tokenizer_folder, tmp_path, capsys):
    path = tmp_path / "chat.jinja"
    path.write_text(DATED + CHATML)
    capsys.readouterr()
    assert main([str(path), "--tokenizer", str(tokenizer_folder), "--output-format", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding["location"] == {
        "file": str(path), "record": 2, "path": None, "char": None, "token": None, "page": None,
    }  # fmt: skip


def test_a_comment_of_the_template_leaves_a_finding_as_it_is(tokenizer_folder, tmp_path):
    path = tmp_path / "chat.jinja"
    comment = "{#- agentcache: ignore[AC701] sessions end before midnight -#}"
    path.write_text(DATED.replace("Today", comment + "\nToday") + CHATML)
    assert main([str(path), "--tokenizer", str(tokenizer_folder)]) == 0


def test_requests_are_not_rendered_with_a_page(tokenizer_folder, tmp_path, capsys):
    page, requests = tmp_path / "nochat.jinja", tmp_path / "run.jsonl"
    page.write_text("Hello {{ name }}.")
    requests.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n')
    capsys.readouterr()
    assert main([str(requests), "--tokenizer", str(tokenizer_folder), "--template", str(page)]) == 2
    assert "a template that reads no messages, expected a chat template" in capsys.readouterr().err


def test_templates_of_a_folder_are_no_news_and_named_ones_are(tokenizer_folder, tmp_path, capsys):
    (tmp_path / "page.jinja").write_text("Hello {{ name }}.")
    flags = ("--tokenizer", str(tokenizer_folder))
    capsys.readouterr()
    assert main([str(tmp_path), *flags]) == 0 and "no chat template" not in capsys.readouterr().err
    assert main([str(tmp_path / "page.jinja"), *flags]) == 0 and "no chat template" in capsys.readouterr().err
    (tmp_path / "page.jinja").write_text("{% if x %}")
    for path in (tmp_path, tmp_path / "page.jinja"):
        assert main([str(path), *flags]) == 2 and "AC903" in capsys.readouterr().out
