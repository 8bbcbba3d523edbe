"""AC703: the same text in other token ids."""

from __future__ import annotations

from agentcache.lint.parting import Parting
from agentcache.lint.prompt import Prompt
from agentcache.lint.rules.base import Cause, NoEdit, Rule


def explain(parting: Parting) -> Cause | None:
    """Recorded ids part where the text does not.

    ::

        generated   …  to | ken | iser          text  …tokeniser
        sent again  …  token | iser             text  …tokeniser
    """
    earlier, later = parting.earlier, parting.later
    token = parting.token
    if parting.settings_changed or token >= min(len(earlier.tokens), len(later.tokens)):
        return None
    if not (_is_recorded(earlier) or _is_recorded(later)):
        return (
            None  # one tokenizer cut both: a word that goes on otherwise may be cut otherwise from its first letter on
        )
    start = later.start_of(token)
    was, now = (prompt.tokenizer.token_text(prompt.tokens[token]) for prompt in (earlier, later))
    if start + max(len(was), len(now)) > parting.char:
        return None  # the text differs there too
    shared = parting.char >= len(earlier.text)
    lost = (len(earlier.tokens) if shared else earlier.token_at(parting.char)) - token
    leaf = later.leaf_at(start)
    keys = leaf.keys if leaf is not None else ("messages",) if later.messages else ("prompt",)
    before, after = (
        "|".join(prompt.tokenizer.token_text(each) for each in prompt.tokens[token : token + 6])
        for prompt in (earlier, later)
    )
    return Cause(
        place=("retokenised", parting.session),
        edit=NoEdit(keys, max(0, lost)),
        char=None,
        severity="warning",
        before=before,
        after=after,
        message="the same text stands in the later prompt in other token ids than those that are cached",
        help=(
            "text that was generated was encoded anew: send it back through a session, which keeps the ids that were drawn, or "
            "through a server that remembers its replies, as agentcache's does"
        ),
        verdict="unavoidable",
    )


def _is_recorded(prompt: Prompt) -> bool:
    reply = prompt.record.reply
    drawn = prompt.answered and reply is not None and reply.token_ids is not None
    return drawn or prompt.record.prompt_ids is not None


RULE = Rule(
    code="AC703",
    name="retokenised-differently",
    what="A prompt repeats earlier text, but its token ids are not the ones that were cached.",
    why=(
        "A cache compares ids, not text. A model may draw a word in two pieces that its tokenizer would write as one; decoded, "
        "sent back and encoded again it becomes another sequence, and everything behind it is computed again. The same happens "
        "at the border of prompt and reply where a tokenizer merges across it. Requests show it only where ids were recorded "
        "(agentcache's traces); agentcache lint template tries tokenizer and template by themselves."
    ),
    bad='generated: "token" "ize" "r"    replayed and encoded again: "tokenizer"',
    good="the generated ids themselves, with the new text encoded and appended",
    fix_safety="Shown, never applied: a request in text cannot say in which tokens it was generated.",
    precedence=70,
    explain=explain,
)
