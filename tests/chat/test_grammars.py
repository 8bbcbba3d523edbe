"""Grammars: what masks let through, for every kind of tokenizer, and what is refused."""

from __future__ import annotations

import builtins
import datetime
import ipaddress
import json
import re
import threading
import uuid
from typing import Any

import jsonschema
import pytest
from chat_fixtures import save_words
from grammar_draws import allowed, draw, sentencepiece_like, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizer import train_tokenizer
from tokenizers import AddedToken

from agentcache.chat.grammars import MAX_DEPTH, MAX_PROPERTIES, MAX_TEXT, GrammarCompiler
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import RequestError
from agentcache.request import ConstraintError

TEXT = {"type": "string", "maxLength": 12}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "any object": {"type": "object", "maxProperties": 1, "additionalProperties": TEXT},
    "string": TEXT,
    "integer": {"type": "integer"},
    "bounded integer": {"type": "integer", "minimum": -3, "maximum": 1200},
    "number": {"type": "number", "exclusiveMinimum": 0, "maximum": 10.5},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "types": {"type": ["integer", "null", "boolean"]},
    "enum": {"enum": ["a", 1, None, {"b": [True]}, "é世"]},
    "const": {"const": {"a": [1, "x"]}},
    "array": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [TEXT, {"type": "boolean"}], "items": False, "minItems": 2},
    "any of": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}]},
    "one of": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    "all of": {"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 70}]},
    "recursive": TREE,
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "optional": {"type": "object", "properties": {"a": TEXT, "b": {"type": "null"}}, "additionalProperties": False},
    "pattern properties": {
        "type": "object", "patternProperties": {"^k[0-9]$": {"type": "integer"}}, "additionalProperties": False,
        "maxProperties": 1,
    },
    "nested": {
        "type": "object",
        "properties": {
            "city": TEXT,
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "array", "items": {"type": "object", "properties": {"t": {"type": "number"}},
                     "required": ["t"], "additionalProperties": False}, "maxItems": 2},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}  # fmt: skip
FORMATS = {
    "date": datetime.date.fromisoformat,
    "date-time": lambda text: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*", text, re.IGNORECASE) or 1 / 0,
    "uuid": uuid.UUID,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
}


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return tokenizer_of(train_tokenizer(["the city of light 0 1 2 {}"], 400), eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def compilers(smol: Tokenizer, tiny: Tokenizer) -> dict[str, tuple[Tokenizer, GrammarCompiler]]:
    """By kind of tokenizer; the models have more logits than the tokenizers have tokens."""
    kinds = {"smollm2": smol, "tiny": tiny, "fallback": sentencepiece_like("fallback")}
    kinds["metaspace"] = sentencepiece_like("metaspace")
    return {
        kind: (tokenizer, GrammarCompiler(tokenizer, tokenizer.vocab_size + 77)) for kind, tokenizer in kinds.items()
    }


KINDS = ["smollm2", "tiny", "fallback", "metaspace"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_is_drawn_fits_the_schema(compilers, kind: str, name: str) -> None:
    tokenizer, compiler = compilers[kind]
    schema = SCHEMAS[name]
    if kind == "metaspace" and name == "enum":
        schema = {"enum": [value for value in schema["enum"] if value != "é世"]}  # it has no bytes to fall back on
    grammar = compiler.json_schema(schema)
    for seed in range(4):
        drawn = draw(tokenizer, grammar, seed)
        assert drawn.ended, drawn.text
        jsonschema.validate(json.loads(drawn.text), schema)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_enforced(compilers, name: str) -> None:
    tokenizer, compiler = compilers["smollm2"]
    for seed in range(4):
        FORMATS[name](json.loads(draw(tokenizer, compiler.json_schema({"type": "string", "format": name}), seed).text))


@pytest.mark.parametrize("kind", KINDS)
def test_json_objects_are_objects_of_any_kind(compilers, kind: str) -> None:
    tokenizer, compiler = compilers[kind]
    found = [draw(tokenizer, compiler.json_object(), seed) for seed in range(10)]
    values = [json.loads(drawn.text) for drawn in found if drawn.ended]
    assert len(values) >= 5 and all(isinstance(value, dict) for value in values)


JSON_VALUES = st.one_of(st.integers(-99, 99), st.booleans(), st.none(), st.text('ab é"\\\n', max_size=4))
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from([{"type": "integer"}, {"type": "boolean"}, {"type": "null"}, {"type": "number"}]),
    st.builds(lambda values: {"enum": values}, st.lists(JSON_VALUES, min_size=1, max_size=4)),
    st.builds(lambda a, b: {"type": "integer", "minimum": a, "maximum": a + b}, st.integers(-99, 99), st.integers(0, 99)),
    st.builds(lambda a, b: {"type": "string", "minLength": a, "maxLength": a + b}, st.integers(0, 3), st.integers(0, 9)),
)  # fmt: skip
NAMES = st.text('abc_ é"', min_size=1, max_size=4)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda properties, picks: {
            "type": "object",
            "properties": properties,
            "required": [name for name, pick in zip(properties, picks) if pick],
            "additionalProperties": False,
        },
        st.dictionaries(NAMES, inner, max_size=4),
        st.lists(st.booleans(), min_size=4, max_size=4),
    )


def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least, "maxItems": least + 2},
                       inner, st.integers(0, 2))  # fmt: skip
    return st.one_of(objects(inner), arrays, st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner))


@settings(max_examples=60, deadline=None)
@given(schema=st.recursive(LEAVES, nested, max_leaves=8), seed=st.integers(0, 99), kind=st.sampled_from(KINDS[:3]))
def test_any_schema_is_kept_to(compilers, schema: dict[str, Any], seed: int, kind: str) -> None:
    tokenizer, compiler = compilers[kind]
    drawn = draw(tokenizer, compiler.json_schema(schema), seed)
    assert drawn.ended
    jsonschema.validate(json.loads(drawn.text), schema)


# -- the vocabulary ------------------------------------------------------------------------------------------------


def test_a_reply_may_begin_with_the_space_that_a_detokeniser_drops(compilers) -> None:
    for kind in ("fallback", "metaspace"):
        tokenizer, compiler = compilers[kind]
        first = {tokenizer.token_text(token) for token in allowed(compiler.json_object().start().mask())}
        assert first == {" ", " {", "{"}


def test_rows_beyond_the_vocabulary_and_holes_are_never_allowed(smol: Tokenizer) -> None:
    backend = train_tokenizer(["a b"], 300)
    backend.add_tokens([AddedToken("<added>", special=False)])
    tokenizer = tokenizer_of(backend)
    everything = allowed(GrammarCompiler(tokenizer, 4096).regex("(.|\n)*").start().mask())
    assert tokenizer.vocab_size == 301
    assert set(everything) <= set(range(301)) - set(tokenizer.control_tokens.values())
    assert 300 in everything, "an added token that is plain text"


def test_every_end_token_ends_and_none_can_come_before(smol: Tokenizer, monkeypatch) -> None:
    monkeypatch.setattr(smol, "eos_token_ids", frozenset({0, 2}))
    constraint = GrammarCompiler(smol, 49152).json_schema({"type": "integer", "maximum": 30, "minimum": 5}).start()
    assert not {0, 2} & set(allowed(constraint.mask()))
    constraint.advance(smol.encode("7")[0])
    assert constraint.finished and allowed(constraint.mask()) == [0, 2]
    constraint.advance(0)
    assert constraint.finished


def test_a_reply_that_may_go_on_is_not_finished(smol: Tokenizer) -> None:
    constraint = GrammarCompiler(smol, 49152).regex("a{2,3}").start()
    a = smol.encode("a")[0]
    constraint.advance(a)
    assert not constraint.finished and 2 not in allowed(constraint.mask())
    constraint.advance(a)
    assert not constraint.finished and {2, a} <= set(allowed(constraint.mask()))
    constraint.advance(a)
    assert constraint.finished


def test_without_an_end_token_a_finished_reply_allows_nothing(tiny: Tokenizer, monkeypatch) -> None:
    monkeypatch.setattr(tiny, "eos_token_ids", frozenset())
    constraint = GrammarCompiler(tiny, 400).lark('start: "{}"').start()
    for char in "{}":
        assert not constraint.finished
        constraint.advance(tiny.encode(char)[0])
    assert constraint.finished and allowed(constraint.mask()) == []


def test_control_tokens_stand_in_rules_and_never_in_strings(smol: Tokenizer) -> None:
    compiler = GrammarCompiler(smol, 49152)
    controls = set(smol.control_tokens.values())
    code = smol.control_tokens["<jupyter_code>"]
    for text in ('start: <jupyter_code> "x"', f'start: <[{code}]> "x"'):
        constraint = compiler.lark(text).start()
        assert allowed(constraint.mask()) == [code]
        constraint.advance(code)
        assert allowed(constraint.mask()) == smol.encode("x")
    plain = compiler.lark('start: "<jupyter_code>"').start()
    assert not controls & set(allowed(plain.mask()))
    string = compiler.json_schema({"type": "string"}).start()
    string.advance(smol.encode('"')[0])
    assert not controls & set(allowed(string.mask()))


def test_white_space_cannot_run_on(compilers) -> None:
    tokenizer, compiler = compilers["smollm2"]
    grammar = compiler.json_schema({"type": "array", "items": {"type": "object", "additionalProperties": TEXT}})
    for seed in range(10):
        text = draw(tokenizer, grammar, seed).text
        outside = re.sub(r'"(\\.|[^"\\])*"', '""', text)
        assert re.fullmatch(r"(\S|[,:] )*", outside), text


def test_words_joined_by_spaces_are_refused(tmp_path) -> None:
    compiler = GrammarCompiler(Tokenizer.from_folder(save_words(tmp_path)), 100)
    with pytest.raises(RequestError, match="puts a space between all tokens") as caught:
        compiler.json_object(param="response_format")
    assert caught.value.param == "response_format"


def test_a_vocabulary_that_cannot_spell_a_reply_ends_it_with_a_clear_error() -> None:
    tokenizer = sentencepiece_like("metaspace")
    constraint = GrammarCompiler(tokenizer, 200).json_schema({"enum": ["abcdeé", "abcdeü"]}).start()
    for char in '"abcde':
        constraint.advance(next(t for t in allowed(constraint.mask()) if tokenizer.token_text(t) == char))
    assert len(allowed(constraint.mask())) > 100, "a failed constraint must not fail the whole step"
    with pytest.raises(ConstraintError, match="no token of this model's vocabulary can follow"):
        constraint.advance(5)


def test_a_token_that_does_not_fit_is_an_error_for_good(smol: Tokenizer) -> None:
    constraint = GrammarCompiler(smol, 49152).json_object().start()
    for token in (smol.encode("x")[0], smol.encode("{")[0]):
        with pytest.raises(ConstraintError, match="cannot be held to its grammar"):
            constraint.advance(token)
        assert not constraint.finished and allowed(constraint.mask())


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "unknown keyword": ({"not": {"type": "string"}}, 'Unimplemented keys: \\["not"\\]'),
    "bad type": ({"type": "strin"}, "Invalid type: strin"),
    "look-around": ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
    "broken pattern": ({"type": "string", "pattern": "(a"}, "unclosed group"),
    "unknown format": ({"type": "string", "format": "binary"}, "Unknown format: binary"),
    "remote": ({"$ref": "http://example.com/a"}, "not present"),
    "missing": ({"$ref": "#/$defs/a"}, "a"),
    "overlapping choices": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    "nothing fits": ({"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable"),
    "no choice": ({"enum": []}, "Unsatisfiable"),
    "itself": ({"$ref": "#"}, "no token"),
    "surrogate": ({"const": "\ud800"}, "."),
    "not a schema": ([], "got list, expected a JSON schema"),
    "many properties": ({"properties": {f"p{i}": {} for i in range(MAX_PROPERTIES + 1)}}, "got 1,001 properties"),
    "many values": ({"enum": [f"value {i}" for i in range(100_000)]}, f"at most {MAX_TEXT:,}"),
    "a large divisor": ({"type": "integer", "multipleOf": 999_983}, "999,983 states"),
    "many divisors": ({"properties": {str(i): {"multipleOf": 4999} for i in range(11)}}, "54,989 states"),
    "many patterns": ({"patternProperties": {f"^a{i}$": {} for i in range(300)}}, "180,000 states"),
    "many properties in all": ({"anyOf": [{"properties": {f"{i}_{j}": {} for j in range(6)}} for i in range(200)]}, "propert"),
    "many choices": ({"anyOf": [{"const": i} for i in range(600)]}, "got 600 schemas in anyOf"),
    "a shared part in many choices": (
        {"$defs": {"a": {"properties": {f"p{i}": {} for i in range(100)}}},
         "anyOf": [{"allOf": [{"$ref": "#/$defs/a"}, {"properties": {f"x{i}": {}}}]} for i in range(160)]}, "cannot be"),
    "many patterns for one string": (
        {"allOf": [{"type": "string", "pattern": f"[a-z]{{{i},}}"} for i in range(40)]}, "9 patterns and formats"),
    "a chain of patterns": (
        {"$defs": {f"d{i}": {"pattern": f"[a-z]{{{i},}}", "$ref": f"#/$defs/d{i + 1}"} for i in range(40)},
         "$ref": "#/$defs/d0"}, "9 patterns and formats"),
    "many required names": ({"type": "object", "required": [str(i) for i in range(10_000)]}, "got 10,000 properties"),
    "many objects to choose from": ({"enum": [{"a": i} for i in range(5000)]}, "got 5,000 properties"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_enforced_is_refused_by_name(compilers, name: str) -> None:
    schema, message = REFUSED[name]
    with pytest.raises(RequestError, match=message) as caught:
        compilers["smollm2"][1].json_schema(schema, param="tools[3].function.parameters")
    assert caught.value.param == "tools[3].function.parameters"
    assert str(caught.value).startswith("tools[3].function.parameters: ") and len(str(caught.value)) < 500


def test_a_deep_schema_is_refused_and_one_less_deep_is_not(compilers) -> None:
    def deep(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "null"}
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return schema

    compiler = compilers["smollm2"][1]
    compiler.json_schema(deep(MAX_DEPTH - 1))
    for levels in (MAX_DEPTH, 5000):
        with pytest.raises(RequestError, match=f"more than {MAX_DEPTH} levels"):
            compiler.json_schema(deep(levels))


def test_a_loose_schema_ignores_what_cannot_be_enforced(compilers) -> None:
    tokenizer, compiler = compilers["smollm2"]
    schema = {"type": "string", "format": "binary", "maxLength": 5, "not": {"const": "x"}}
    assert len(json.loads(draw(tokenizer, compiler.json_schema(schema, strict=False), 1).text)) <= 5


def test_options_in_a_schema_are_not_its_users_to_set(compilers) -> None:
    schema = {"type": "string", "format": "binary", "x-guidance": {"lenient": True}}
    with pytest.raises(RequestError, match="Unknown format"):
        compilers["smollm2"][1].json_schema(schema)


@pytest.mark.parametrize(
    "text", ["start: <no_such_token>", 'start: "a', "begin: /a/", "start: start start", "start: nobody"]
)
def test_broken_grammars_are_refused(compilers, text: str) -> None:
    with pytest.raises(RequestError, match="cannot be enforced") as caught:
        compilers["smollm2"][1].lark(text, param="tools")
    assert caught.value.param == "tools"


def test_patterns_match_as_a_whole(compilers) -> None:
    tokenizer, compiler = compilers["smollm2"]
    for seed in range(5):
        assert re.fullmatch("a{3}/b[0-9]+\n", draw(tokenizer, compiler.regex("a{3}/b[0-9]+\\n"), seed).text)


def test_a_grammar_is_compiled_once_and_few_are_kept(compilers) -> None:
    compiler = GrammarCompiler(compilers["tiny"][0], 400)
    first = compiler.regex("a")
    assert compiler.regex("a") is first
    for i in range(200):
        compiler.regex(f"b{i}")
    assert compiler.regex("b199") is compiler.regex("b199")
    assert compiler.regex("a") is not first


def test_what_one_namespace_has_compiled_no_other_finds(compilers) -> None:
    compiler = GrammarCompiler(compilers["tiny"][0], 400)
    mine = compiler.lark('start: "a"', root=b"mine")
    assert compiler.lark('start: "a"', root=b"mine") is mine
    assert compiler.lark('start: "a"', root=b"theirs") is not mine


def test_threads_share_a_compiler(compilers) -> None:
    tokenizer, _ = compilers["tiny"]
    compiler = GrammarCompiler(tokenizer, 400)
    texts: list[str] = []

    def work(seed: int) -> None:
        texts.append(draw(tokenizer, compiler.json_schema(SCHEMAS["nested"]), seed % 3).text)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 12 and len(set(texts)) == 3


def test_a_server_without_the_library_says_what_to_install(tiny: Tokenizer, monkeypatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "llguidance":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RequestError, match=r"pip install '\.\[serve\]'"):
        GrammarCompiler(tiny, 400).json_object()
