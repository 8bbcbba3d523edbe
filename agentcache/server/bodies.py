"""Request bodies.  A field's description says what is expected; a wrong value is answered with that sentence.

Unknown fields are ignored, ``null`` means absent, and nothing is coerced: ``"5"`` is not a number and ``true`` is not 1.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from agentcache.dialects.wording import shown
from agentcache.server.errors import ApiError, bad_field

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024
MAX_STOP_TOKENS = 1024
MAX_PROMPTS = 2048
MAX_CHOICES = 128
MAX_ALTERNATIVES = 20


def _whole(value: Any) -> Any:
    """1.0 is the integer 1 to JSON and to JavaScript."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, BeforeValidator(_whole)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARACTERS)]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class StreamOptions(Body):
    include_usage: bool | None = Field(None, description="true or false: one more chunk with the usage before [DONE]")


class GenerationBody(Body):
    """What chat and completions share."""

    model: str | None = Field(None, description="the name of the served model, as text")

    temperature: float | None = Field(None, ge=0, le=1e6, description="a number from 0 (greedy) to 1000000; default 1")
    top_p: float | None = Field(None, gt=0, le=1, description="a number above 0 and up to 1; default 1")
    top_k: Int | None = Field(None, ge=-1, description="an integer: 0 or -1 for no filter, or a count from 1")
    min_p: float | None = Field(None, ge=0, le=1, description="a number from 0 to 1; default 0")
    seed: Int | None = Field(None, ge=-(2**63), lt=2**63, description="an integer of 64 bits (-2^63 to 2^63 - 1)")
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="a number from -2 to 2; default 0")
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="a number from -2 to 2; default 0")
    repetition_penalty: float | None = Field(
        None, ge=1e-6, le=10, description="a number from 0.000001 to 10; default 1"
    )
    logit_bias: dict[str, float] | None = Field(
        None, description="an object of token ids (as text) to numbers from -100 to 100"
    )

    n: Int | None = Field(None, ge=1, le=MAX_CHOICES, description=f"an integer from 1 to {MAX_CHOICES}; default 1")
    best_of: Int | None = Field(None, description="an integer equal to n; other values are not served")
    max_tokens: Int | None = Field(None, ge=0, description="an integer from 1; default: the room left")
    max_completion_tokens: Int | None = Field(None, ge=0, description="an integer from 1; wins over max_tokens")
    stop: Stop | list[Stop] | None = Field(
        None,
        description=f"text, or a list of up to {MAX_STOPS} texts, each of 1 to {MAX_STOP_CHARACTERS} characters",
    )
    stop_token_ids: list[Int] | None = Field(
        None, max_length=MAX_STOP_TOKENS, description=f"a list of up to {MAX_STOP_TOKENS} token ids"
    )
    ignore_eos: bool | None = Field(None, description="true or false: go on after the end token")

    stream: bool | None = Field(None, description="true or false")
    stream_options: StreamOptions | None = Field(
        None, description='an object such as {"include_usage": true}, only when stream is true'
    )
    return_token_ids: bool | None = Field(None, description="true or false")
    priority: Int | None = Field(
        None, ge=-(2**31), lt=2**31, description="an integer of 32 bits; a lower one is served first"
    )
    cache_salt: str | None = Field(None, description="text: only requests with the same salt share pages")
    prompt_cache_key: str | None = Field(None, description="text; accepted for compatibility")
    session: str | None = Field(None, description="text: the id of a session")
    if_turns: Int | None = Field(
        None, ge=0, description="an integer from 0: how many turns the session must have, or the turn is refused"
    )
    turn_id: str | None = Field(
        None, min_length=1, max_length=64, description="1 to 64 characters: a name of the client's own for this turn"
    )

    @property
    def streaming(self) -> bool:
        return bool(self.stream)

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatPrompt(Body):
    """What a chat template renders."""

    messages: list[dict[str, Any]] = Field(min_length=1, description="a list of at least one message object")
    tools: list[dict[str, Any]] | None = Field(None, description="a list of tool objects")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="an object of template variables")
    add_generation_prompt: bool | None = Field(None, description="true or false; default true")


class ChatBody(GenerationBody, ChatPrompt):
    """``POST /v1/chat/completions``"""

    logprobs: bool | None = Field(None, description="true or false")
    top_logprobs: Int | None = Field(
        None, ge=0, le=MAX_ALTERNATIVES, description=f"an integer from 0 to {MAX_ALTERNATIVES}, with logprobs true"
    )
    tool_choice: str | dict[str, Any] | None = Field(
        None, description='"auto", "none", "required", or {"type": "function", "function": {"name": name of a tool}}'
    )
    parallel_tool_calls: bool | None = Field(
        None, description="true or false: more than one call a reply; default true"
    )
    response_format: dict[str, Any] | None = Field(
        None, description='{"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", "json_schema": {…}}'
    )


class ChatTurnBody(ChatBody):
    """``POST /v1/chat/completions`` with a session: only what is new."""

    messages: list[dict[str, Any]] = Field([], description="a list of new message objects")


class CompletionBody(GenerationBody):
    """``POST /v1/completions``"""

    prompt: str | list[Any] = Field(
        description="text, a list of texts, a list of token ids, or a list of lists of token ids; none of them empty"
    )
    echo: bool | None = Field(None, description="true or false: repeat the prompt before the completion")
    logprobs: Int | None = Field(
        None, ge=0, le=MAX_ALTERNATIVES, description=f"an integer from 0 to {MAX_ALTERNATIVES}"
    )
    suffix: str | None = Field(None, description="nothing: text after the completion is not served")


class CompletionTurnBody(CompletionBody):
    """``POST /v1/completions`` with a session: only what is new."""

    prompt: str | list[Any] = Field("", description="text or a list of token ids")


class RenderBody(ChatPrompt):
    """``POST /v1/chat/completions/render``"""

    cache_salt: str | None = Field(None, description="text: as the request to be rendered would have it")

    model: str | None = Field(None, description="the name of the served model, as text")


class TokenizeBody(Body):
    """``POST /tokenize``: a prompt, or messages."""

    model: str | None = Field(None, description="the name of the served model, as text")
    prompt: str | None = Field(None, description="text")
    add_special_tokens: bool | None = Field(None, description="true or false: begin the prompt as the model expects")
    messages: list[dict[str, Any]] | None = Field(
        None, min_length=1, description="a list of at least one message object"
    )
    tools: list[dict[str, Any]] | None = Field(None, description="a list of tool objects")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="an object of template variables")
    add_generation_prompt: bool | None = Field(None, description="true or false; default true")


class DetokenizeBody(Body):
    """``POST /detokenize``"""

    model: str | None = Field(None, description="the name of the served model, as text")
    tokens: list[Int] = Field(description="a list of token ids")


class ClockBody(Body):
    """``POST /debug/clock``"""

    advance_s: float = Field(ge=0, le=1e9, description="a number of seconds from 0")


class FaultBody(Body):
    """``POST /debug/fault``"""

    site: str = Field(description="forward, sampler, alloc, disk_write or host_copy")
    at: Int = Field(ge=1, description="an integer from 1: the how-manyth call from now")
    delay_ms: Int | None = Field(None, ge=0, le=600_000, description="an integer from 0: delay instead of failing")


AnyBody = TypeVar("AnyBody", bound=BaseModel)


def check(model: type[AnyBody], fields: dict[str, Any]) -> AnyBody:
    """``fields`` as a ``model``.

    Raises:
        ApiError: 400, naming the first field that is wrong, what was got and what was expected.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        location = error.errors(include_url=False, include_input=False, include_context=False)[0]["loc"]
    field = str(location[0])
    expected = _expected(model, location)
    if field not in fields:
        raise bad_field(field, f"missing, expected {expected}", code="missing_field")
    path, value = _locate(fields, location)
    raise ApiError(400, f"{path}: got {shown(value)}, expected {expected}", param=field, code="invalid_value")


def _expected(model: type[BaseModel], location: tuple[int | str, ...]) -> str | None:
    """What the deepest field that ``location`` names is described as."""
    field = model.model_fields[str(location[0])]
    for kind in get_args(field.annotation) if len(location) > 1 else ():
        if isinstance(kind, type) and issubclass(kind, BaseModel) and location[1] in kind.model_fields:
            return _expected(kind, location[1:])
    return field.description


def _locate(fields: dict[str, Any], location: tuple[int | str, ...]) -> tuple[str, Any]:
    """Path and value of what is wrong, as deep as the data goes (pydantic adds names of types at the end)."""
    path = ""
    value: Any = fields
    for step in location:
        if isinstance(value, dict) and step in value:
            path, value = f"{path}.{step}" if path else str(step), value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        else:
            break
    return path, value
