"""Fields of requests, and what looks like one but is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

_KNOWN = frozenset(
    """
    add_generation_prompt allowed_token_ids audio bad_words best_of cache_salt chat_template chat_template_kwargs
    continue_final_message detokenize echo frequency_penalty function_call functions guided_choice guided_grammar guided_json
    guided_regex ignore_eos include_reasoning include_stop_str_in_output kv_transfer_params length_penalty logit_bias
    logits_processors logprobs max_completion_tokens max_tokens metadata min_p min_tokens modalities model n
    parallel_tool_calls prediction presence_penalty priority prompt prompt_cache_key prompt_logprobs reasoning
    reasoning_effort repetition_penalty response_format return_token_ids return_tokens_as_token_ids safety_identifier seed
    service_tier session skip_special_tokens spaces_between_special_tokens stop stop_token_ids store stream
    stream_options structured_outputs suffix temperature tool_choice tools top_a top_k top_logprobs top_p
    truncate_prompt_tokens typical_p use_beam_search user verbosity web_search_options
    """.split()  # noqa: SIM905  a list of eighty strings is not read by anybody
)
"""Those that this server and its relatives know.  Others pass as well: a server may know more than this list."""
_ALIKE = 0.85


def check_fields(given: Mapping[str, Any], named: Iterable[str] = ()) -> None:
    """
    Args:
        named: parameters of the method that was called.

    Raises:
        TypeError: a field that nobody knows and that is almost one of those that are known: a server would ignore it.
    """
    known = _KNOWN | set(named)
    for name in given:
        if name not in known and (near := get_close_matches(name, known, 1, _ALIKE)):
            raise TypeError(
                f"{name}: there is no such field; did you mean {near[0]}? (extra_body={{...}} sends it as it is)"
            )


def with_extra(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``fields`` with what stands in ``extra_body``, unchecked, beside the others."""
    rest = dict(fields)
    extra = rest.pop("extra_body", None)
    return {**rest, **(extra or {})}
