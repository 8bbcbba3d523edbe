"""Chat templates in the spirit of those that models ship with, each with a way of its own to write what a model said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tiny_tokenizer import CHATML

from agentcache.chat.replies.pieces import ReplyMessage, ToolCall

_CHATML_TOOLS = (
    "{%- if tools %}<|im_start|>system\n"
    "{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}\n# Tools\n"
    "{%- for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|im_end|>\n"
    "{% elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
)
_RESULTS = (
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ message.content }}\n</tool_response>"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
)
_CALLS = (
    "{%- for call in message.tool_calls %}{%- set call = call.function %}"
    '\n<tool_call>\n{"name": "{{ call.name }}", "arguments": {{ call.arguments | tojson }}}\n</tool_call>{% endfor %}'
)

THINKING = (
    _CHATML_TOOLS + "{%- set ns = namespace(last=-1) %}"
    "{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% elif message.role == 'assistant' %}"
    "{%- set content = message.content or '' %}{%- set reasoning = message.reasoning_content or '' %}"
    "{%- if '</think>' in content %}"
    "{%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{- '<|im_start|>assistant\n' }}"
    "{%- if loop.index0 > ns.last and (loop.last or reasoning) %}{{ '<think>\n' + reasoning + '\n</think>\n\n' }}{% endif %}"
    "{{- content }}" + _CALLS + "<|im_end|>\n"
    "{% elif message.role == 'tool' %}" + _RESULTS + "{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""Drops the reasoning of earlier turns; told not to think, it opens a turn with empty reasoning."""

OPENED = (
    "[gMASK]"
    "{%- if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'assistant' %}<|assistant|></think>{{ (message.content or '').strip() }}"
    "{%- for call in message.tool_calls %}<tool_call>{{ call.function.name }}"
    "{%- for key, value in call.function.arguments.items() %}<k>{{ key }}</k><v>{{ value | tojson }}</v>{% endfor %}"
    "</tool_call>{% endfor %}"
    "{%- elif message.role == 'tool' %}"
    "{%- if messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}"
    "<tool_response>{{ message.content }}</tool_response>"
    "{%- else %}<|{{ message.role }}|>{{ message.content }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|assistant|><think>{% endif %}"
)
"""Opens the reasoning itself, which in a history is closed at once; a turn ends where the next begins."""

HEADERS = (
    "{%- macro turn(role) %}<|header|>{{ role }}<|end_header|>\n\n{% endmacro -%}"
    "{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
    "{{- turn('system') }}{{ system }}<|eot|>"
    "{%- if tools %}{{ turn('user') }}"
    "{%- for tool in tools %}{{ tool | tojson(indent=4) }}\n{% endfor %}{{ messages[0].content | trim }}<|eot|>"
    "{%- set messages = messages[1:] %}{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.tool_calls %}"
    "{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{%- set call = message.tool_calls[0].function %}"
    '{{- turn("assistant") }}{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot|>'
    "{%- elif message.role == 'tool' %}{{ turn('ipython') }}{{ message.content | tojson }}<|eot|>"
    "{%- else %}{{ turn(message.role) }}{{ message.content | trim }}<|eot|>{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ turn('assistant') }}{% endif %}"
)
"""Trims what was said, prints results as JSON, takes one call a turn; no line breaks between turns."""

STRICT = (
    "{{- bos_token }}{%- set ns = namespace(index=0) %}"
    "{%- if messages[0].role == 'system' %}[SYSTEM]{{ messages[0].content }}[/SYSTEM]{% set messages = messages[1:] %}{% endif %}"
    "{%- for message in messages %}{%- if not (message.role == 'tool' or message.tool_calls) %}"
    "{%- if (message.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{%- set ns.index = ns.index + 1 %}{% endif %}{% endfor %}"
    "{%- if tools %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}[INST]{{ message.content }}[/INST]"
    "{%- elif message.tool_calls %}{% for call in message.tool_calls %}"
    "{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    "[TOOL_CALLS]{{ call.function.name }}[CALL_ID]{{ call.id }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}"
    "{{- eos_token }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if message.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    "[RESULT]{{ message.tool_call_id }}[CONTENT]{{ message.content }}[/RESULT]"
    "{%- else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""Wants roles to alternate, so that a call must be seen to be one; prints the ids of calls; asks for no reply."""

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|header|>", "<|end_header|>", "<|eot|>", "<s>", "</s>", "[gMASK]", "[INST]", "[/INST]",
    "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[RESULT]", "[/RESULT]", "[CONTENT]", "<|user|>", "<|assistant|>",
    "<|observation|>", "<|system|>",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A template, and how a model of its family writes a reply."""

    template: str
    end: str
    thinks: bool = False
    opens: str = ""
    """What the model writes before its reasoning, beside what the template opened."""
    many_calls: bool = True

    def write(self, message: ReplyMessage) -> str:
        """Text as a model draws it, with white space of its own; arguments are copied as they are."""
        if self.template == STRICT and message.calls:
            return "".join(f"[TOOL_CALLS]{c.name}[CALL_ID]{c.id}[ARGS]{c.arguments}" for c in message.calls)
        if self.template == HEADERS and message.calls:
            return "".join(f'{{"name":"{c.name}" , "parameters":{c.arguments}}}' for c in message.calls)
        thought = f"{self.opens}{message.reasoning}</think>\n\n" if message.reasoning else ""
        calls = [f'<tool_call> {{"arguments":{c.arguments}, "name":"{c.name}"}}</tool_call>' for c in message.calls]
        return thought + message.content + "\n".join(calls)


FAMILIES = {
    "plain": Family(CHATML, "<|im_end|>"),
    "thinking": Family(THINKING, "<|im_end|>", thinks=True, opens="<think>\n"),
    "opened": Family(OPENED, "<|user|>", thinks=True),
    "headers": Family(HEADERS, "<|eot|>", many_calls=False),
    "strict": Family(STRICT, "</s>"),
}

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"to {name} a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}},
        },
    }
    for name in ("read", "run")
]


def sent_back(message: ReplyMessage, *, reasoning: bool = False, rewritten: bool = True) -> dict[str, Any]:
    """``message`` as a client sends it back: arguments parsed and written anew, unless told otherwise."""

    def arguments(text: str) -> str:
        return json.dumps(json.loads(text)) if rewritten else text

    sent: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    if message.calls:
        sent["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": arguments(c.arguments)}}
            for c in message.calls
        ]
    return sent | ({"reasoning_content": message.reasoning} if reasoning and message.reasoning else {})


def call(number: int, name: str = "read", arguments: str = '{ "path":"a.py",\n"line" : 7.0 }') -> ToolCall:
    return ToolCall(f"zqcall{number:03d}", name, arguments)


def result(call: ToolCall, text: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
