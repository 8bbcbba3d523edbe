from __future__ import annotations

from pathlib import Path

import pytest

from examples.agents.reading_plan import ReadingPlan
from examples.agents.toolbox import Toolbox, ToolError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text("import queue\n\n\ndef run_engine(queue):\n    return queue\n", "utf-8")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("from engine import run_engine\nrun_engine([])\n", "utf-8")
    (tmp_path / "app" / "data.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "hidden.py").write_text("run_engine = None\n", "utf-8")
    return tmp_path


def test_list_files_gives_text_files_largest_first_and_no_hidden_ones(folder: Path) -> None:
    assert Toolbox(folder).list_files() == "engine.py (5 lines)\napp/main.py (2 lines)"
    assert Toolbox(folder).list_files("app") == "app/main.py (2 lines)"


def test_a_long_listing_says_how_much_is_missing(folder: Path) -> None:
    assert Toolbox(folder).list_files(limit=1).splitlines()[-1] == "(1 smaller files are not listed)"


def test_read_file_gives_exact_lines_with_their_range(folder: Path) -> None:
    text = Toolbox(folder).read_file("engine.py", start=4, lines=1)
    assert text == "engine.py, lines 4 to 4 of 5:\ndef run_engine(queue):"


def test_search_text_gives_path_line_and_text(folder: Path) -> None:
    assert Toolbox(folder).search_text(r"^run_\w+\(").splitlines() == ["app/main.py:2: run_engine([])"]
    assert Toolbox(folder).search_text("nowhere") == "no line matches nowhere"


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/hostname", "app/../../x"])
def test_nothing_outside_the_folder_is_read(folder: Path, path: str) -> None:
    with pytest.raises(ToolError, match="outside the folder"):
        Toolbox(folder).read_file(path)


def test_a_symlink_does_not_lead_outside(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.py").write_text("password\n", "utf-8")
    (folder / "link").symlink_to(outside)
    (folder / "link.py").symlink_to(outside / "secret.py")
    toolbox = Toolbox(folder)
    assert "password" not in toolbox.search_text("pass")
    with pytest.raises(ToolError, match="outside the folder"):
        toolbox.read_file("link/secret.py")


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("read_file", {"path": "none.py"}, "error: none.py: expected a text file"),
        ("read_file", {"path": "app/data.bin"}, "error: app/data.bin: expected a text file"),
        ("read_file", {"path": "engine.py", "start": 9}, "error: engine.py: start is 9, expected 1 to 5"),
        ("search_text", {"pattern": "("}, "error: pattern '(' is not a regular expression"),
        ("erase", {}, "error: no tool erase, expected one of list_files, read_file, search_text"),
    ],
)
def test_a_refused_call_comes_back_as_a_sentence(
    folder: Path, name: str, arguments: dict[str, object], sentence: str
) -> None:
    assert Toolbox(folder).call(name, arguments).startswith(sentence)


def calls(folder: Path, count: int) -> list[str]:
    toolbox, plan = Toolbox(folder), ReadingPlan()
    call, made = plan.first_call(), []
    for _ in range(count):
        made.append(str(call))
        call = plan.next_call(call, toolbox.call(call.name, call.arguments))
    return made


def test_the_plan_follows_what_the_tools_answered(folder: Path) -> None:
    assert calls(folder, 5) == [
        "list_files(folder='.')",
        "read_file(path='engine.py', start=1, lines=24)",
        r"search_text(pattern='\\brun_engine\\b')",
        "read_file(path='app/main.py', start=1, lines=24)",
        "list_files(folder='.')",
    ]


def test_the_plan_never_ends_in_an_empty_folder(tmp_path: Path) -> None:
    assert calls(tmp_path, 3) == ["list_files(folder='.')"] * 3
