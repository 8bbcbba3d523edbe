"""How far the check of Python sources follows what varies, and where it ends."""

from __future__ import annotations

import pytest

from agentcache.lint.python import check_python

HEAD = """import os, platform, random, secrets, subprocess, tempfile, time, uuid, json, string, textwrap
from datetime import date, datetime, timedelta
from pathlib import Path
"""
SEND = """
    return client.chat.completions.create(
        model="m", messages=[{"role": "system", "content": system}, *history, {"role": "user", "content": question}]
    )
"""


def found(body: str, before: str = "") -> list[tuple[str, str]]:
    """Codes and severities of a function that makes ``system`` by the statements of ``body``."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"{HEAD}{before}\ndef ask(client, history, question):\n{lines}{SEND}"
    return [(finding.code, finding.severity) for finding in check_python(source, "agent.py")]


CLOCK = [("AC101", "error")]


@pytest.mark.parametrize(
    "body",
    [
        'system = f"It is {datetime.now()}."',
        'system = f"It is {datetime.now():%H:%M}."',
        'system = "It is %s." % datetime.now()',
        'system = "It is %(now)s." % {"now": time.ctime()}',
        'system = "It is {}.".format(datetime.now())',
        'system = "It is {now}.".format(now=datetime.now().isoformat())',
        'system = "It is " + str(datetime.now()) + "."',
        'system = "It is "\nsystem += time.strftime("%H:%M")',
        'system = " ".join(["It is", time.strftime("%X"), "now"])',
        'lines = ["You are helpful."]\nlines.append(f"It is {time.time()}")\nsystem = "\\n".join(lines)',
        'system = string.Template("It is $now").substitute(now=time.time())',
        'system = "It is {now}".replace("{now}", str(time.time()))',
        'now = datetime.now()\nlater = now + timedelta(hours=1)\nsystem = f"Until {later.isoformat()}"',
        'stamp = int(time.time())\nsystem = f"t={stamp}"',
        'system = textwrap.dedent(f"""It is {datetime.now()}""").strip()',
        'system = json.dumps({"rules": "be brief", "now": str(datetime.now())})',
        'system = f"It is {(now := datetime.now())}"',
        'if question:\n    system = f"It is {datetime.now()}"\nelse:\n    system = "You are helpful."',
        'system = "You are helpful." if history else f"It is {datetime.now()}"',
        'try:\n    system = f"It is {datetime.now()}"\nexcept ValueError:\n    system = ""',
        'with open("x") as file:\n    system = file.read() + time.ctime()',
    ],
)
def test_a_clock_is_followed_through_whatever_composes_texts(body):
    assert found(body) == CLOCK


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("def now():\n    return datetime.now().isoformat()\n", 'system = f"It is {now()}"'),
        ("def head(now):\n    return f'It is {now}'\n", "system = head(datetime.now())"),
        ("def head(rules, *, now=''):\n    return rules + f'It is {now}'\n", "system = head('x', now=time.time())"),
        ("def head():\n    def now():\n        return time.time()\n    return f'It is {now()}'\n", "system = head()"),
        (
            "class Clock:\n    def read(self):\n        return time.time()\n    def text(self):\n"
            "        return f'It is {self.read()}'\n",
            "system = Clock().text()",
        ),
    ],
)
def test_a_clock_is_followed_through_functions_of_the_module(before, body):
    assert found(body, before) == CLOCK


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('system = f"It is {date.today()}."', [("AC101", "info")]),
        (
            'system = f"It is {date.today()}. " + "Be brief. " * 1 + "x" + "' + "Answer in English. " * 5 + '"',
            [("AC101", "warning")],
        ),
        ('system = datetime.now().strftime("%Y-%m-%d")', [("AC101", "info")]),
        ('system = f"It is {datetime.now().isoformat()[:10]}"', [("AC101", "info")]),
        ('system = f"It is {datetime.now().date()}"', [("AC101", "info")]),
        ('system = datetime.now().strftime("%B %Y")', []),
        ('system = f"It is {datetime.now().year}"', []),
        ('system = f"It is {datetime.now():%Y}"', []),
    ],
)
def test_what_changes_rarely_is_less_bad(body, expected):
    assert found(body) == expected


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("uuid.uuid4()", "AC102"),
        ("uuid.uuid4().hex[:8]", "AC102"),
        ("secrets.token_hex(4)", "AC102"),
        ("os.getpid()", "AC102"),
        ("tempfile.mkdtemp()", "AC102"),
        ("Path(tempfile.mkdtemp()) / 'x'", "AC102"),
        ("id(question)", "AC102"),
        ("hash(question)", "AC102"),
        ("random.choice(['a', 'b'])", "AC103"),
        ("len(history)", "AC103"),
        ("datetime.utcnow()", "AC101"),
    ],
)
def test_each_kind_of_source_has_its_code(expression, code):
    assert [one for one, _ in found(f'system = f"x {{{expression}}}"')] == [code]


@pytest.mark.parametrize(
    "expression",
    [
        "os.getcwd()",
        "Path.cwd()",
        "platform.platform()",
        "os.environ['HOME']",
        "os.environ.get('USER')",
        "os.getenv('PWD')",
        "subprocess.check_output(['git', 'status'], text=True)",
        "subprocess.run(['ls'], capture_output=True, text=True).stdout.strip()",
    ],
)
def test_facts_about_the_machine_are_told_only_in_front_of_fixed_text(expression):
    rules = "Answer in English, in one sentence, and cite the page that you rely on."
    assert [code for code, _ in found(f'system = f"x {{{expression}}} {rules}"')] == ["AC104"]
    assert found(f'system = f"{rules} x {{{expression}}}"') == []


@pytest.mark.parametrize(
    "body",
    [
        "now = datetime.now()\nprint(now)\nsystem = 'You are helpful.'",
        "system = f'It is {datetime.now()}'\nsystem = 'You are helpful.'",
        "started = time.time()\nsystem = 'a' if time.time() - started > 3 else 'b'",
        "system = load(since=datetime.now())",
        'system = f\'Region: {os.environ["REGION"]} and {os.environ.get("APP_NAME")}\'',
        "system = f'Id {uuid.uuid5(uuid.NAMESPACE_DNS, question)}'",
        "system = f'{time.strftime(\"%Y\", time.gmtime(0))}'",
        "question = f'{question} (asked at {datetime.now()})'\nsystem = 'You are helpful.'",
        "entry = {'id': uuid.uuid4(), 'text': question}\nsystem = f'Known: {entry[\"text\"]}'",
        "name, asked = 'a', datetime.now()\nsystem = f'You are {name}.'",
        "def unused():\n    return f'It is {datetime.now()}'\nsystem = 'You are helpful.'",
        "if history:\n    system = f'It is {datetime.now()}'\n    return system\nsystem = 'You are helpful.'",
        "seen = random.Random(7)\nsystem = f'{seen.choice([1, 2])}'",
    ],
)
def test_what_does_not_get_into_the_prompt_is_not_told(body):
    assert found(body) == []


def test_a_seeded_module_does_not_choose_at_random():
    assert found("system = f'Tip: {random.choice([1, 2])}'", "random.seed(7)\n") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("names = {'b', 'a'}\nsystem = ', '.join(names)", 1),
        ("names = set(question.split())\nsystem = ', '.join(n.lower() for n in names)", 1),
        ("names = set(history) | {'x', 'y'}\nsystem = f'{list(names)}'", 1),
        ("names = frozenset(question.split())\nsystem = str(names)", 1),
        ("system = '\\n'.join(os.listdir('.'))", 1),
        ("system = '\\n'.join(p.name for p in Path('.').iterdir())", 1),
        ("system = ''\nfor name in {'a', 'b'}:\n    system += name", 1),
        (
            "lines = []\nfor name in set(question.split()):\n    lines.append(f'- {name}')\nsystem = '\\n'.join(lines)",
            1,
        ),
        ("system = ', '.join(sorted({'b', 'a'}))", 0),
        ("system = ', '.join(sorted(set(question.split()), key=len))", 0),
        ("names = os.listdir('.')\nnames.sort()\nsystem = ', '.join(names)", 0),
        ("system = f'{len({1, 2})} and {max({1, 2})} and {3 in {1, 3}}'", 0),
        ("system = ', '.join(str(n) for n in {3, 1})", 0),
        ("system = ', '.join(dict.fromkeys(question.split()))", 0),
        ("names = set()\nsystem = 'none' if not names else 'some'", 0),
        ("total = 0\nfor name in {'a', 'b'}:\n    total += len(name)\nsystem = 'You are helpful.'", 0),
    ],
)
def test_an_order_that_nobody_chose_is_told(body, expected):
    assert [code for code, _ in found(body)] == ["AC203"] * expected


def test_a_shuffled_list_is_a_random_order():
    body = "tips = question.split()\nrandom.shuffle(tips)\nsystem = ', '.join(tips)"
    assert found(body) == [("AC103", "error")]
    assert found(body, "random.seed(3)\n") == []


def test_a_set_in_an_annotated_parameter_is_one():
    source = (
        HEAD
        + "def ask(client, tags: set[str]):\n    return client.responses.create(model='m', instructions=', '.join(tags))\n"
    )
    assert [finding.code for finding in check_python(source, "a.py")] == ["AC203"]
    assert check_python(source.replace("set[str]", "list[str]"), "a.py") == []


def test_a_block_of_facts_is_one_finding_and_none_at_the_end():
    facts = "\\nSystem: {platform.system()}\\nFolder: {os.getcwd()}\\nShell: {os.environ['SHELL']}\\n"
    rules = "Answer in English, in one sentence, and cite the page that you rely on. " * 3
    assert found(f'system = f"{facts}{rules}"') == [("AC104", "info")]
    assert found(f'system = f"{rules}{facts}Now begin:"') == []
    assert found(f'system = f"{facts}You are helpful."') == [("AC104", "info")]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ('messages = [{"role": "user", "content": f"{time.time()}"}, *history]', ["AC101"]),
        ('messages = [{"role": "user", "content": f"{time.time()}"}] + history', ["AC101"]),
        ('messages = [*history, {"role": "user", "content": f"{time.time()}"}]', []),
        ('messages = history + [{"role": "user", "content": f"{time.time()}"}]', []),
        ('messages = [*history, {"role": "system", "content": f"{time.time()}"}]', []),
        ('messages = history + [{"role": "developer", "content": f"{time.time()}"}]', []),
        ('messages = [{"role": "developer", "content": f"{time.time()}"}] + history', ["AC101"]),
        (
            'messages = [{"role": "system", "content": [{"type": "text", "text": f"{time.time()}"}]}, *history]',
            ["AC101"],
        ),
        (
            'messages = []\n    messages.append({"role": "system", "content": time.ctime()})\n    messages += history',
            ["AC101"],
        ),
        ('messages = list(history)\n    messages.append({"role": "system", "content": time.ctime()})', []),
        ('messages = list(history)\n    messages.insert(0, {"role": "system", "content": time.ctime()})', ["AC101"]),
        ('messages = [SystemMessage(f"{time.time()}"), *history]', ["AC101"]),
        ('messages = [ChatMessage(role="system", content=f"{time.time()}"), *history]', ["AC101"]),
        ('messages = [dict(role="system", content=f"{time.time()}"), *history]', ["AC101"]),
        ('messages = [("system", f"{time.time()}"), ("user", "hi")]', ["AC101"]),
        ('messages = [("human", f"{time.time()}")]', []),
    ],
)
def test_what_matters_is_where_in_the_list_a_message_stands(line, codes):
    send = "return client.chat.completions.create(model='m', messages=messages)"
    source = f"{HEAD}\ndef ask(client, history):\n    {line}\n    {send}\n"
    assert [finding.code for finding in check_python(source, "agent.py")] == codes


@pytest.mark.parametrize(
    ("call", "codes"),
    [
        ("Agent(name='a', instructions=text)", ["AC101"]),
        ("client.messages.create(model='m', system=text, messages=[])", ["AC101"]),
        ("client.responses.create(model='m', instructions=text, input='x')", ["AC101"]),
        ("client.session(system=text)", ["AC101"]),
        ("Worker(system_prompt=text)", ["AC101"]),
        ("create_react_agent(model, tools=[], prompt=text)", ["AC101"]),
        ("client.images.generate(model='m', prompt=text)", []),
        ("client.completions.create(model='m', prompt=text)", ["AC101"]),
        ("client.completions.create(model='m', prompt=f'Answer {post}. {time.time()}')", []),
        ("post('/v1/messages', json={'model': 'm', 'system': text, 'messages': []})", ["AC101"]),
        ("FunctionTool(name='a', description=text)", ["AC101"]),
        ("client.send('hi', volatile={'time': text})", []),
        ("Host(system=text)", []),
        ("Recipe(instructions=text)", []),
        ("client.messages.create(model='m', system='x', messages=[], metadata={'user_id': text})", []),
    ],
)
def test_which_arguments_are_prompts(call, codes):
    text = "f'{time.time()} Answer in English, in one sentence, and cite the page that you rely on.'"
    source = f"{HEAD}\ndef ask(client, post):\n    text = {text}\n    return {call}\n"
    assert [finding.code for finding in check_python(source, "agent.py")] == codes
