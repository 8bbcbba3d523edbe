"""Tools that are written out in a module, whoever sends them, and facts about the machine."""

from __future__ import annotations

import pytest

from agentcache.lint.python import check_python

CHAT_TOOL = """
from datetime import datetime
TAGS = {{"red", "blue"}}
TOOLS = [
    {{
        "type": "function",
        "function": {{
            "name": "paint",
            "description": {description},
            "parameters": {{"type": "object", "properties": {{"tag": {{"type": "string", "enum": {enum}}}}}}},
        }},
    }}
]
"""
MESSAGES_TOOL = """
from datetime import datetime
TAGS = {{"red", "blue"}}
TOOLS = [
    {{
        "name": "paint",
        "description": {description},
        "input_schema": {{"type": "object", "properties": {{"tag": {{"type": "string", "enum": {enum}}}}}}},
    }}
]
"""


def findings(shape: str, description: str = '"Paints."', enum: str = '["red"]') -> list[tuple[str, str]]:
    source = shape.format(description=description, enum=enum)
    return [(finding.code, finding.confidence) for finding in check_python(source, "tools.py")]


@pytest.mark.parametrize("shape", [CHAT_TOOL, MESSAGES_TOOL])
@pytest.mark.parametrize("enum", ['list({"a", "b"})', "[tag for tag in TAGS]", "list(TAGS)", "[*TAGS]"])
def test_a_set_in_a_schema_is_suspected_without_a_call_in_the_file(shape, enum):
    assert findings(shape, enum=enum) == [("AC203", "suspected")]


@pytest.mark.parametrize("shape", [CHAT_TOOL, MESSAGES_TOOL])
@pytest.mark.parametrize("enum", ["sorted(TAGS)", '["a", "b"]', "list(dict.fromkeys(NAMES))", "[1, 2]"])
def test_an_order_that_somebody_chose_is_none(shape, enum):
    assert findings(shape, enum=enum) == []


@pytest.mark.parametrize("shape", [CHAT_TOOL, MESSAGES_TOOL])
def test_a_clock_in_a_description_is_suspected(shape):
    assert findings(shape, description='f"Paints. Today is {datetime.now()}."') == [("AC101", "suspected")]


def test_a_tool_without_parameters_is_one():
    source = """
import time
TOOLS = [{"type": "function", "function": {"name": "now", "description": f"At {time.time()}"}}]
"""
    assert [finding.code for finding in check_python(source, "tools.py")] == ["AC101"]


def test_other_things_with_parameters_are_no_tools():
    source = """
import random, time
RUN = {"name": "run", "description": "of today", "parameters": {"seed": random.random(), "at": time.time()}}
COLUMN = {"type": "string", "enum": list({"a", "b"})}
"""
    assert check_python(source, "runs.py") == []


SYSTEM = """
import os
def ask(client, question):
    system = f"You are at {%s}. Answer in one sentence. Cite the page that you rely on, and say so when you do not know."
    return client.responses.create(model="m", instructions=system, input=question)
"""


@pytest.mark.parametrize(
    "fact", ["os.environ['BRANCH']", "os.environ.get('GIT_BRANCH')", "os.getenv('HOSTNAME')", "os.uname().nodename"]
)
def test_what_tells_of_the_machine_or_the_checkout_is_told(fact):
    assert [finding.code for finding in check_python(SYSTEM % fact, "a.py")] == ["AC104"]


@pytest.mark.parametrize("setting", ["os.environ['MODEL']", "os.environ.get('COMPANY_NAME')", "os.getenv('LANGUAGE')"])
def test_a_variable_that_is_a_setting_is_not(setting):
    assert check_python(SYSTEM % setting, "a.py") == []
