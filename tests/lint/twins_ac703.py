from lint_twins import Twin
from lint_workloads import INSTRUCTIONS
from tiny_tokenizer import train_tokenizer
from twins_ac701 import CHATML as KEPT

MERGING = KEPT.replace("<|im_start|>assistant\n", "<|im_start|>assistant: ").replace(
    "<|im_start|>{{ message.role }}\n",
    "<|im_start|>{{ message.role }}{{ ': ' if message.role == 'assistant' else '\n' }}",
)
"""Ends what it asks with a blank, which joins the first word of the reply."""

TOKENIZER = train_tokenizer([INSTRUCTIONS, "system user assistant tool It is now 2026-11-29 10:30:05"], 700)
REPLY = "Read the file, run the tests, and say plainly what you did and what you did not do after each change."
DRAWN = [token for char in REPLY for token in TOKENIZER.encode(char).ids]
"""The reply a letter a token, as no tokenizer would write it."""
ASKED = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "What are you to do?"}]
ANSWERED = [*ASKED, {"role": "assistant", "content": REPLY}, {"role": "user", "content": "Good."}]


def text(messages, *, opened=True):
    said = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return said + ("<|im_start|>assistant\n" if opened else "")


def trace(messages, ids, reply=None):
    choice = {"index": 0, "token_ids": reply or [], "message": {"role": "assistant", "content": REPLY}}
    return {
        "format": "agentcache-trace", "version": 1, "route": "/v1/chat/completions", "session": "s", "model": "m",
        "request": {"messages": messages}, "prompt_token_ids": ids, "choices": [choice] if reply else [],
    }  # fmt: skip


def ids(said):
    return TOKENIZER.encode(said).ids


FIRST = ids(text(ASKED))
REST = text(ANSWERED)[len(text(ASKED)) + len(REPLY) :]

TWINS = [
    Twin("AC703", "the opening ends with a blank", failing={"chat.jinja": MERGING}, clean={"chat.jinja": KEPT}),
    Twin(
        "AC703",
        "a drawn reply is encoded anew",
        failing=[trace(ASKED, FIRST, DRAWN), trace(ANSWERED, ids(text(ANSWERED)))],
        clean=[trace(ASKED, FIRST, DRAWN), trace(ANSWERED, [*FIRST, *DRAWN, *ids(REST)])],
        path="request.messages[2].content",
    ),
    Twin(
        "AC703",
        "prompts of ids",
        failing=[{"model": "m", "prompt": [*FIRST, *DRAWN]}, {"model": "m", "prompt": ids(text(ASKED) + REPLY + REST)}],
        clean=[{"model": "m", "prompt": [*FIRST, *DRAWN]}, {"model": "m", "prompt": [*FIRST, *DRAWN, *ids(REST)]}],
    ),
]
