"""Runs the linter over request bodies, without the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.finding import Finding
from agentcache.lint.linter import Linter
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.records import Record, Reply
from agentcache.lint.rules import RULES
from agentcache.lint.rules.base import Rule

TEMPLATE = (Path(__file__).parent / "twin_templates" / "prints_all.jinja").read_text("utf-8")
NOT_ALIGNED = {"AC501", "AC502", "AC503", "AC403"}


def explained(
    folder: Path,
    bodies: Sequence[dict[str, Any]],
    *,
    template: str | None = TEMPLATE,
    replies: Sequence[dict[str, Any] | None] = (),
    sessions: Sequence[str] = (),
    codes: frozenset[str] | None = None,
) -> list[Finding]:
    """Findings, those about alignment and compactions left out.

    Args:
        template: ``None``: the tokenizer's own, which prints contents only.
        replies: what was answered to each, as chat messages.
        sessions: the names of their sessions.
        codes: only these.
    """
    rules: list[Rule] = [rule for rule in RULES if (rule.code in codes if codes else rule.code not in NOT_ALIGNED)]
    linter = Linter(PromptMaker(ChatRenderer(Tokenizer.from_folder(folder), template), 16), rules, 16)
    for index, body in enumerate(bodies):
        reply = replies[index] if index < len(replies) else None
        session = sessions[index] if index < len(sessions) else None
        linter.add(Record("run.jsonl", index + 1, body, session=session, reply=None if reply is None else Reply(reply)))
    return linter.report().findings


def told(findings: Sequence[Finding]) -> list[tuple[str, int | None, str | None]]:
    """Code, record and path of each."""
    return [(finding.code, finding.location.record, finding.location.path) for finding in findings]


def loss(folder: Path, sound: Sequence[dict[str, Any]], defective: Sequence[dict[str, Any]]) -> int:
    """What the second loses beside the first, counted against every earlier prompt."""
    return sum(cached(folder, sound)) - sum(cached(folder, defective))


def cached(folder: Path, bodies: Sequence[dict[str, Any]]) -> list[int]:
    renderer = ChatRenderer(Tokenizer.from_folder(folder), TEMPLATE)
    prompts = [
        renderer.render(
            body["messages"], tools=body.get("tools"), template_kwargs=body.get("chat_template_kwargs")
        ).token_ids
        for body in bodies
    ]
    counts = []
    for index, prompt in enumerate(prompts):
        common = [
            next((i for i, (a, b) in enumerate(zip(prompt, earlier)) if a != b), min(len(prompt), len(earlier)))
            for earlier in prompts[:index]
        ]
        counts.append(min(max(common, default=0), len(prompt) - 1))
    return counts
