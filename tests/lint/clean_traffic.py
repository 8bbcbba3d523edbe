"""Conversations that agents hold when nothing is wrong with them: each appends to what was sent before, or begins anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lint_workloads import INSTRUCTIONS

Body = dict[str, Any]

TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
<call>{{ {"id": call.id, "name": call.function.name, "arguments": call.function.arguments} | tojson }}</call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Prints all that there is, and nothing otherwise when more follows."""


def tool(name: str, description: str = "Reads a part of the working tree.") -> Body:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool("read_file"),
    tool("list_files", "Lists a folder."),
    tool("run_tests", "Runs the tests and says what fails."),
]


def system(content: str = INSTRUCTIONS) -> Body:
    return {"role": "system", "content": content}


def user(content: str) -> Body:
    return {"role": "user", "content": content}


def assistant(content: str = "", *calls: Body, reasoning: str | None = None) -> Body:
    message: Body = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    return {**message, "tool_calls": list(calls)} if calls else message


def call(number: int, name: str = "read_file", arguments: str = '{"path": "parser.py"}') -> Body:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(number: int, content: str = "def parse(text):\n    return text.split()\n") -> Body:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


def sent(*steps: Body | list[Body], tools: list[Body] | None = None, **fields: Any) -> list[Body]:
    """The requests of one conversation: one wherever an assistant's message follows, and one with all of it."""
    messages = [message for step in steps for message in (step if isinstance(step, list) else [step])]
    ends = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    ends += [len(messages)] if messages[-1]["role"] != "assistant" else []
    more = {**({"tools": tools} if tools else {}), **fields}
    return [{"messages": messages[:end], **more} for end in ends if end]


def plain() -> list[Body]:
    return sent(
        system(), user("Fix the parser."), assistant("Which file is it in?"), user("In parser.py."),
        assistant("It splits at blanks only, so tabs are kept."), user("Then split at all white space."),
        assistant("Done, and the tests pass."), user("Thanks, commit it."),
    )  # fmt: skip


def tool_calls() -> list[Body]:
    return sent(
        system(), user("Why does the build fail?"),
        assistant("Let me look.", call(1)), result(1), assistant("", call(2, "run_tests", "{}")), result(2, "1 failed"),
        assistant("A tab is not split."), user("Mend it."), assistant("", call(3)), result(3), assistant("Mended."),
        user("Good."), tools=TOOLS,
    )  # fmt: skip


def parallel_calls() -> list[Body]:
    return sent(
        system(), user("Compare the two parsers."),
        assistant("", call(1), call(2, arguments='{"path": "lexer.py"}'), call(3, "list_files", '{"path": "."}')),
        [result(1), result(2, "class Lexer: pass"), result(3, "lexer.py parser.py")],
        assistant("They do not share a line."), user("Which is shorter?"),
        assistant("", call(4, "run_tests", "{}"), call(5)), [result(4, "all passed"), result(5)],
        assistant("The lexer."), user("Thanks."), tools=TOOLS,
    )  # fmt: skip


def reasoning() -> list[Body]:
    return sent(
        system(), user("Is 91 a prime?"), assistant("No.", reasoning="7 times 13 is 91."),
        user("And 97?"), assistant("Yes.", reasoning="Not divisible by 2, 3, 5, 7; 11 squared is 121."),
        user("Their sum?"), assistant("188.", call(1, "run_tests", "{}"), reasoning="91 and 97 make 188. I check it."),
        result(1, "188"), assistant("It is 188.", reasoning="The tool agrees."), user("Thanks."), tools=TOOLS,
    )  # fmt: skip


def forks() -> list[Body]:
    """One beginning, three ways to go on, each for two turns, one after another and in turns."""
    head = [system(), user("Here is the parser: def parse(text): return text.split()"), assistant("I have read it.")]
    asked = ("Review its names.", "Review its speed.", "Review its tests.")
    first = [[*head, user(question)] for question in asked]
    second = [[*way, assistant(f"Answer {n}."), user("Say it shorter.")] for n, way in enumerate(first)]
    return [{"messages": messages} for messages in (head[:2], *first, *second)]


def retries() -> list[Body]:
    """The same request again, and again with another last message."""
    first, second = sent(system(), user("Name a colour."), assistant("Red."), user("Another one."))[:2]
    edited = {"messages": [*second["messages"][:-1], user("A warmer one, please.")]}
    return [first, first, second, second, edited]


def compaction() -> list[Body]:
    """A long history is replaced by a summary once, and goes on from there."""
    steps: list[Body] = [system(), user("Port the parser to Rust, module by module.")]
    for number in range(8):
        steps += [assistant(f"Module {number} is ported, its tests pass."), user(f"Go on with module {number + 1}.")]
    short = [system(), user("Summary of what was done: modules 0 to 7 are ported and tested. Go on with module 8.")]
    for number in range(8, 11):
        short += [assistant(f"Module {number} is ported, its tests pass."), user(f"Go on with module {number + 1}.")]
    return [*sent(*steps), *sent(*short)]


def several_agents() -> list[Body]:
    """A planner, a coder and a reviewer, each with a system text and tools of its own, take turns."""
    agents = (
        (system("You plan work in small steps and never write code yourself."), None),
        (system("You write the code that a step asks for, nothing more. " + INSTRUCTIONS), TOOLS),
        (system("You review code and answer with a list of faults, or with: none."), TOOLS[:1]),
    )
    chats = [
        sent(
            head,
            user(f"Step {n}: parse numbers."),
            assistant("Done."),
            user(f"Step {n + 1}: parse names."),
            tools=tools,
        )
        for n, (head, tools) in enumerate(agents)
    ]
    return [body for bodies in zip(*chats, strict=True) for body in bodies]


def many_users() -> list[Body]:
    """One agent serves users who ask what they like, the same question among them; their names come last."""
    questions = ("How do I split a text?", "How do I join a list?", "How do I split a text?", "What is a tab?")
    chats = [
        sent(system(), user(f"{question}\n\nI am {name}."), assistant("Like this."), user("Thanks."))
        for question, name in zip(questions, ("Anna", "Bert", "Cleo", "Dora"), strict=True)
    ]
    return [body for bodies in zip(*chats, strict=True) for body in bodies]


def few_shot() -> list[Body]:
    """Examples before the question are the same for all, the question is not."""
    shots = [
        system("Sort the words."),
        user("pear apple"),
        assistant("apple pear"),
        user("fig date"),
        assistant("date fig"),
    ]
    return [{"messages": [*shots, user(words)]} for words in ("kiwi lime", "plum nut", "leek kale")]


def retrieval() -> list[Body]:
    """Documents stand beside the question that they were found for, in the newest message, and stay there."""
    documents = ("<document>Pages hold tokens.</document>", "<document>Trees hold pages.</document>")
    asked = [user(f"{document}\n\nWhat holds what?") for document in documents]
    return sent(
        system(), asked[0], assistant("Pages hold tokens."), asked[1], assistant("Trees hold pages."), user("Thanks.")
    )


def clock_at_the_tail() -> list[Body]:
    """The time is said in the newest message and replayed as it was."""
    stamps = ("10:30:05", "10:31:47", "10:33:12")
    steps = [step for stamp in stamps for step in (user(f"What next?\n\nNow: 2026-11-29 {stamp}"), assistant("Go on."))]
    return sent(system(), *steps)


_ALL = (plain, tool_calls, parallel_calls, reasoning, forks, retries, compaction, several_agents, many_users, few_shot)
SHAPES: dict[str, Callable[[], list[Body]]] = {shape.__name__: shape for shape in (*_ALL, retrieval, clock_at_the_tail)}
