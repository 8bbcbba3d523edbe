"""Every fix on the rules' own corpus: it brings back what was said, and loses nothing."""

from __future__ import annotations

import importlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lint_twins import Twin, write_input

from agentcache.lint.cli import main

MENDED = ("ac201", "ac202", "ac203", "ac204", "ac205", "ac206", "ac207", "ac208")
TWINS: list[Twin] = [
    twin
    for code in MENDED
    for twin in importlib.import_module(f"twins_{code}").TWINS
    if not isinstance(twin.failing, dict) and twin.code == code.upper()
]
ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def lint(files: list[Path], tokenizer: Path, twin: Twin, capsys: pytest.CaptureFixture[str], *flags: str):
    capsys.readouterr()
    chosen = twin.flags if "--tokenizer" in twin.flags else ("--tokenizer", str(tokenizer), *twin.flags)
    code = main([*map(str, files), "--isolated", "--output-format", "json", "--statistics", *chosen, *flags])
    told = capsys.readouterr()
    report = json.loads(told.out)
    return code, report["findings"], report["statistics"], told.err


def said(value: Any, name: str = "") -> Iterator[str]:
    """Everything that a record says, without order, blanks, Unicode form, escapes and the names of calls."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"key {key}"
            yield from said(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from said(item, name)
    elif isinstance(value, str):
        yield from () if name in ("id", "tool_call_id") else texts(value)
    else:
        yield repr(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def texts(text: str) -> Iterator[str]:
    try:
        inner = json.loads(text)
    except ValueError:
        inner = None
    if isinstance(inner, dict):
        yield from said(inner)
        return
    plain = ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\\/", "/")
    plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    yield "".join(unicodedata.normalize("NFC", plain).split())


def test_there_are_twins_to_mend():
    assert {twin.code.lower() for twin in TWINS} == set(MENDED)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.code.lower()}-{twin.name.replace(' ', '-')}")
def test_a_fix_brings_back_what_was_said_and_loses_nothing(twin, tmp_path, tokenizer_folder, capsys):
    files = write_input(tmp_path, twin.failing)
    original = files[0].read_bytes()
    _, (found, *_), before, _ = lint(files, tokenizer_folder, twin, capsys, "--select", twin.code)
    lint(files, tokenizer_folder, twin, capsys, "--fix", "--unsafe-fixes", "--select", twin.code)
    mended = files[0].read_bytes()
    _, left, after, _ = lint(files, tokenizer_folder, twin, capsys, "--select", twin.code)
    if found["fix"]["applicability"] == "display" or mended == original:
        assert (mended, left, after) == (original, [found], before)
        return
    assert left == []
    computed = [figures["prompt_tokens"] - figures["predicted_cached_tokens"] for figures in (before, after)]
    gained = after["predicted_cached_tokens"] - before["predicted_cached_tokens"]
    assert max(gained, computed[0] - computed[1]) >= found["tokens_lost"]
    pairs = list(zip(original.split(b"\n"), mended.split(b"\n"), strict=True))
    assert any(old != new for old, new in pairs)
    for old, new in ((json.loads(old), json.loads(new)) for old, new in pairs if old != new):
        assert old != new or json.dumps(old) != json.dumps(new)
        assert Counter(said(old)) == Counter(said(new))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.code.lower()}-{twin.name.replace(' ', '-')}")
def test_a_diff_shows_what_a_fix_would_do_and_nothing_is_mended_twice(twin, tmp_path, tokenizer_folder, capsys):
    files = write_input(tmp_path, twin.failing)
    original = files[0].read_bytes()
    flags = ["--isolated", "--tokenizer", str(tokenizer_folder), *twin.flags, "--unsafe-fixes", "--select", twin.code]
    capsys.readouterr()
    code = main([str(files[0]), *flags, "--diff"])
    diff = capsys.readouterr().out
    assert files[0].read_bytes() == original
    main([str(files[0]), *flags, "--fix"])
    mended = files[0].read_bytes()
    assert code == (1 if mended != original else 0) and bool(diff) == (mended != original)
    lines = zip(original.split(b"\n"), mended.split(b"\n"), strict=True)
    changed = [number for number, (old, new) in enumerate(lines, start=1) if old != new]
    hunks = [hunk.splitlines() for hunk in diff.split("\n@@ ")[1:]]
    assert sorted({number for hunk in hunks for number in numbers(hunk[0])}) == changed
    assert all([line[0] for line in hunk[1:]] == ["-", "+"] and hunk[1][1:] != hunk[2][1:] for hunk in hunks)
    assert max(map(len, diff.split("\n")), default=0) < 500
    main([str(files[0]), *flags, "--fix"])
    assert files[0].read_bytes() == mended


def numbers(head: str) -> Iterator[int]:
    """3, 4, 5 and 9 of ``lines 3-5, 9, tools @@``."""
    for part in re.match(r"lines? ([\d, -]+)", head)[1].strip(", ").split(", "):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
