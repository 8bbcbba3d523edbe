"""Replies drawn at random from the grammars of forced calls are what the format's own parser reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from grammar_draws import Drawn, allowed, draw, tokenizer_of
from reply_fixtures import THINK, as_object
from tiny_tokenizer import train_tokenizer
from tokenizers import AddedToken

from agentcache.chat.detokenizer import TextStream
from agentcache.chat.grammars import GrammarCompiler
from agentcache.chat.replies.base import CallChoice, Thinking, ToolFormat
from agentcache.chat.replies.formats import HermesFormat, JsonFormat, LlamaFormat, MistralFormat
from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.chat.replies.reader import ReplyReader
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import RequestError
from agentcache.request import ConstraintError, Grammar

SHORT = {"type": "string", "maxLength": 8}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": SHORT, "near": {"$ref": "#/$defs/near"}},
                "required": ["city", "near"],
                "additionalProperties": False,
                "$defs": {"near": {"type": "array", "items": SHORT, "maxItems": 2}},
            },
        },
    },
    {"type": "function", "function": {"name": 'a "quoted" name'}},
    {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}}},
]
NO_EXTRAS = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS[2]["function"]["parameters"] = NO_EXTRAS
BY_NAME = [tool for tool in TOOLS if '"' not in tool["function"]["name"]]

FORMATS: dict[str, ToolFormat] = {
    "hermes": HermesFormat("\n", "\n", "\n"),
    "hermes on one line": HermesFormat(),
    "a list between markers": HermesFormat(controls=("<TOOLCALL>", "</TOOLCALL>"), listed=True),
    "llama": LlamaFormat(),
    "json": JsonFormat(),
    "mistral list": MistralFormat(gap=" "),
    "mistral by name": MistralFormat(by_name=True),
    "mistral with ids": MistralFormat(by_name=True, with_id=True),
}
CONTROLS = [
    "<tool_call>",
    "</tool_call>",
    "<TOOLCALL>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|python_tag|>",
    *THINK,
]


@pytest.fixture(scope="module", params=["markers are control tokens", "markers are plain text"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    backend = train_tokenizer(['{"name": "look", "arguments": {"city": "Bern"}} <tool_call>'], 330)
    if request.param == "markers are control tokens":
        backend.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROLS])
    return tokenizer_of(backend, eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, tokenizer.vocab_size)


def tools_of(format: ToolFormat) -> list[dict[str, Any]]:
    """Names with quotes cannot stand outside JSON."""
    return BY_NAME if isinstance(format, MistralFormat) and format.by_name else TOOLS


def drawn(compiler: GrammarCompiler, tokenizer: Tokenizer, grammar: str, seed: int) -> str:
    """The text of a reply as its reader sees it: markers included, and up to its end."""
    found: Drawn = draw(tokenizer, compiler.lark(grammar), seed, most=400)
    stream = TextStream(tokenizer, skip_special_tokens=False)
    text = "".join(stream.push(token).text for token in found.ids) + stream.flush()
    assert found.ended, text
    return text


def check_calls(reply: ReplyMessage, tools: Sequence[dict[str, Any]]) -> None:
    known = {tool["function"]["name"]: tool["function"].get("parameters", NO_EXTRAS) for tool in tools}
    for call in reply.calls:
        jsonschema.validate(as_object(call.arguments), known[call.name])


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "single"])
def test_forced_replies_are_calls_that_fit_their_schemas_and_nothing_else(
    name: str, parallel: bool, tokenizer: Tokenizer, compiler: GrammarCompiler
) -> None:
    format = FORMATS[name]
    tools = tools_of(format)
    names = tuple(tool["function"]["name"] for tool in tools)
    grammar = format.grammar(tools, CallChoice(names, required=True, parallel=parallel), tokenizer)
    for seed in range(4):
        reply = ReplyReader(format, tools).read(drawn(compiler, tokenizer, grammar, seed))
        assert reply.content == ""
        assert len(reply.calls) >= 1
        assert parallel or len(reply.calls) == 1
        check_calls(reply, tools)


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_named_tool_is_the_one_that_is_called(name: str, tokenizer: Tokenizer, compiler: GrammarCompiler) -> None:
    format = FORMATS[name]
    grammar = format.grammar(TOOLS, CallChoice(("wait",), parallel=False), tokenizer)
    reply = ReplyReader(format, TOOLS).read(drawn(compiler, tokenizer, grammar, 0))
    assert [(call.name, call.arguments) for call in reply.calls] == [("wait", "{}")]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("name", ["hermes", "json", "mistral list"])
def test_calls_are_forced_after_reasoning(
    name: str, opened: bool, tokenizer: Tokenizer, compiler: GrammarCompiler
) -> None:
    format = FORMATS[name]
    choice = CallChoice(("wait",), parallel=False)
    grammar = compiler.lark(format.grammar(TOOLS, choice, tokenizer, Thinking(THINK, opened)))
    opening = "" if opened else THINK[0]
    thoughts = f"{opening}so {{ wait }}\n{THINK[1]}\n\n"
    assert not accepts(tokenizer, grammar, thoughts)
    assert accepts(tokenizer, grammar, thoughts + forced_text(compiler, tokenizer, format))


def forced_text(compiler: GrammarCompiler, tokenizer: Tokenizer, format: ToolFormat) -> str:
    grammar = format.grammar(TOOLS, CallChoice(("wait",), parallel=False), tokenizer)
    return drawn(compiler, tokenizer, grammar, 1)


@pytest.mark.parametrize("name", list(FORMATS))
def test_where_calls_are_free_text_is_free_and_calls_still_fit(
    name: str, tokenizer: Tokenizer, compiler: GrammarCompiler
) -> None:
    format = FORMATS[name]
    tools = tools_of(format)
    choice = CallChoice(("look", "wait"), required=False)
    grammar = compiler.lark(format.grammar(tools, choice, tokenizer))
    assert accepts(tokenizer, grammar, "Just {some} <b>text</b>,\n\nno call. 👋")
    call = forced_text(compiler, tokenizer, format)
    assert accepts(tokenizer, grammar, call)
    with pytest.raises(ConstraintError, match="cannot be held"):
        accepts(tokenizer, grammar, call.replace("wait", "wander"))


def accepts(tokenizer: Tokenizer, grammar: Grammar, text: str) -> bool:
    """Whether ``text`` fits and may end there."""
    constraint = grammar.start()
    for token in tokenizer.encode(text):
        constraint.advance(token)
    return bool(tokenizer.eos_token_ids & set(allowed(constraint.mask())))


@pytest.mark.parametrize("names", [(), ("nobody",)])
def test_a_choice_without_a_tool_is_refused(names: tuple[str, ...], tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="tool_choice: got"):
        HermesFormat().grammar(TOOLS, CallChoice(names), tokenizer)


ODD_NAMES = (
    "{id}", "{name}", "{bare}", "<tool_call>", "</tool_call>", "[ARGS]", "[TOOL_CALLS]", "<|im_end|>", "\u2028", "\x85", "\n",
    "lo ok", 'q"x', "a{b}", "\\", "\x00", "👋", '{"name": "', "x" * 300,
)  # fmt: skip


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_function_may_be_called_anything_that_its_calls_can_say(
    name: str, tokenizer: Tokenizer, compiler: GrammarCompiler
) -> None:
    format = FORMATS[name]
    quoted = not (isinstance(format, MistralFormat) and format.by_name)
    for odd in ODD_NAMES:
        tools = [{"type": "function", "function": {"name": odd, "parameters": NO_EXTRAS}}]
        choice = CallChoice((odd,), parallel=False)
        if not quoted and (set(odd) & set('{}[]" \n\x85\u2028') or len(odd) > 256):
            with pytest.raises(RequestError, match="without quotes"):
                format.grammar(tools, choice, tokenizer)
            continue
        reply = drawn(compiler, tokenizer, format.grammar(tools, choice, tokenizer), 0)
        (call,) = ReplyReader(format, tools).read(reply).calls
        assert (call.name, call.arguments) == (odd, "{}")
