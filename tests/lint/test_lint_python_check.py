"""What a finding in a Python source says, what the check bears, and programs on which it says nothing."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import twins_python

from agentcache.lint.python import check_python
from agentcache.lint.python.report import NAMES
from agentcache.lint.rules import RULES

SOURCE = '''from datetime import datetime


class Chat:
    def ask(self, client, history, text):
        now = datetime.now()
        messages = [
            {"role": "system", "content": f"Grüße! It is {now}. """ + RULES + """"},
            *history,
        ]
        return client.chat.completions.create(model="m", messages=messages)
'''.replace('""" + RULES + """', twins_python.RULES)


def test_a_finding_names_the_place_the_source_and_the_prompt():
    (finding,) = check_python(SOURCE, "chat.py")
    assert (finding.code, finding.name, finding.severity, finding.confidence) == (
        "AC101",
        "volatile-time",
        "error",
        "confirmed",
    )
    place = finding.location
    assert (place.file, place.record, place.path) == ("chat.py", 8, "Chat.ask")
    assert SOURCE.splitlines()[7][place.char :].startswith("now}")
    assert finding.before is None
    assert finding.after == "now"
    assert "datetime.now(), line 6" in finding.message
    assert "line 8" in finding.message
    assert (finding.tokens_lost, finding.tokens_lost_kind) == ((2 + len(twins_python.RULES)) // 4, "estimate")


@pytest.mark.parametrize("mark", ["", "\N{ZERO WIDTH NO-BREAK SPACE}"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_marks_and_umlauts_do_not_shift_a_place(mark, line_end):
    (finding,) = check_python(mark + SOURCE.replace("\n", line_end), "chat.py")
    assert finding.location.record == 8
    assert SOURCE.splitlines()[7][finding.location.char :].startswith("now}")


def test_a_flow_over_functions_is_only_suspected():
    source = (
        "import time\ndef now():\n    return time.time()\ndef f(c):\n    return c.session(system=f'It is {now()}')\n"
    )
    (finding,) = check_python(source, "a.py")
    assert (finding.confidence, finding.location.record, finding.location.path) == ("suspected", 5, "f")


def test_what_is_read_once_is_less_bad_than_what_is_read_for_each_request():
    source = """import time
NOW = time.time()

def ask(client, question):
    return client.responses.create(model="m", instructions=f"It is {NOW}.", input=question)
"""
    (finding,) = check_python(source, "a.py")
    assert (finding.severity, finding.confidence) == ("info", "suspected")
    assert "read once" in finding.message


def test_what_belongs_to_one_conversation_and_has_nothing_behind_it_is_clean():
    source = """import time

def main(client):
    messages = [{"role": "system", "content": f"You are helpful. It is {time.ctime()}"}]
    while True:
        messages.append({"role": "user", "content": input()})
        reply = client.chat.completions.create(model="m", messages=messages)
        messages.append(reply.choices[0].message)
"""
    assert check_python(source, "a.py") == []
    tools = source.replace("messages=messages)", "messages=messages, tools=TOOLS)")
    assert [finding.severity for finding in check_python(tools, "a.py")] == ["info"]
    behind = source.replace('{time.ctime()}"', "{time.ctime()}. " + twins_python.RULES + '"')
    assert [finding.severity for finding in check_python(behind, "a.py")] == ["warning"]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(:\n", 1),
        ("x = 1\nx = = 2\n", 2),
        ("print 'hello'\n", 1),
        ("x = 1\0\n", 1),
        ("x = '\ud800'\n", 1),
        ("x = '''\n\n", 1),
        ("if x:\npass\n", 2),
        ("(" * 5000 + ")" * 5000, 1),
    ],
)
def test_what_cannot_be_parsed_is_named(source, line):
    (finding,) = check_python(source, "broken.py")
    assert (finding.code, finding.severity, finding.location.file) == ("AC903", "error", "broken.py")
    assert finding.location.record == line


@pytest.mark.parametrize(
    "source",
    [
        "",
        "\n",
        "# instructions=\n",
        "system_prompt = " + " + ".join(["x"] * 900) + "\n",
        "system_prompt = " + "f(" * 90 + "1" + ")" * 90 + "\n",
        "messages = x" + "[0]" * 500 + "\nsystem_prompt = messages\n",
        "system_prompt = '' + system_prompt\n",
        "def system_prompt():\n    return 'x' + system_prompt()\n",
        "def a():\n    return 'a' + b()\ndef b():\n    return 'b' + a()\nc.session(system=a())\n",
        "class A(A):\n    def f(self):\n        return c.session(system=self.x + self.f())\n",
        "class A(B):\n    pass\nclass B(A):\n    def f(self):\n        return c.session(system=self.x)\n",
        "system_prompt = (lambda: (yield))()\n",
        "x = y = z = system_prompt = '%s %' % 1\n",
        "system_prompt = '{' .format(1) + '{0} {} {a.b[0]}'.format(1, **k)\n",
        "match x:\n    case {'role': 'system', **rest}:\n        system_prompt = f'{rest!r:>{width}}'\n",
    ],
)
def test_odd_sources_are_borne(source):
    assert check_python(source, "odd.py") == []


def test_half_a_program_is_borne():
    chance = random.Random(5)
    for twin in twins_python.TWINS:
        lines = twin.failing["agent.py"].splitlines(keepends=True)
        for _ in range(6):
            kept = "".join(line for line in lines if chance.random() < 0.8)
            for finding in check_python(kept, "agent.py"):
                assert 1 <= finding.location.record <= len(lines) + 1


def test_nothing_of_the_source_is_run_or_imported():
    source = "import surely_not_there\nraise SystemExit(3)\nsystem_prompt = f'{surely_not_there.run()}'\n"
    assert check_python(source, "a.py") == []
    assert "surely_not_there" not in sys.modules


def test_this_project_itself_is_clean():
    root = Path(__file__).parents[2]
    folders = ("agentcache", "sdk", "examples")
    files = [file for folder in folders for file in sorted((root / folder).rglob("*.py"))]
    assert len(files) > 200
    findings = [finding for file in files for finding in check_python(file.read_text(encoding="utf-8"), str(file))]
    assert findings == []


def test_its_names_are_those_of_the_rules():
    rules = {rule.code: rule.name for rule in RULES}
    assert {code: rules[code] for code in NAMES} == dict(NAMES)


AGENT = '''"""An agent as it should be."""
import datetime, json, logging, os, random, time, uuid
from collections import deque

log = logging.getLogger(__name__)
SYSTEM = "You are a careful assistant. " + open("rules.md").read()


class Agent:
    def __init__(self, client, tools):
        self.client = client
        self.tools = sorted(tools, key=lambda tool: tool["function"]["name"])
        self.session_id = str(uuid.uuid4())
        self.messages = [{"role": "system", "content": SYSTEM}]
        self.seconds = deque(maxlen=50)

    def turn(self, text):
        started = time.monotonic()
        log.info("turn %s of %s", len(self.messages), self.session_id)
        stamp = datetime.datetime.now().isoformat()
        self.messages.append({"role": "user", "content": f"{text}\\n\\n[{stamp}, {os.getcwd()}]"})
        for step in range(20):
            reply = self.client.chat.completions.create(
                model="m", messages=self.messages, tools=self.tools, user=self.session_id,
                extra_headers={"x-request-id": str(uuid.uuid4())}, seed=random.randint(0, 9),
            )
            message = reply.choices[0].message
            self.messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                arguments = json.loads(call.function.arguments)
                result = json.dumps(self.run(call.function.name, arguments, at=datetime.datetime.now()))
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if not message.tool_calls:
                break
        self.seconds.append(time.monotonic() - started)
        with open(f"log-{datetime.date.today()}.json", "w") as file:
            json.dump({"id": self.session_id, "at": time.time(), "messages": self.messages[-5:]}, file)
        return self.messages[-1]["content"]

    def remind(self):
        self.messages.append({"role": "system", "content": f"It is {datetime.datetime.now()}"})

    def compact(self):
        summary = self.client.responses.create(model="m", input=f"Summarize: {self.messages[1:]}")
        self.messages = self.messages[:1] + [{"role": "user", "content": summary.output_text}] + self.messages[-4:]
'''


def test_an_agent_as_it_should_be_is_clean():
    assert check_python(AGENT, "agent.py") == []
