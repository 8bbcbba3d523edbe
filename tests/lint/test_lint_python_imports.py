"""Prompts and tools that stand in modules of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcache.lint.finding import Finding
from agentcache.lint.python import ModuleFinder, check_python

RULES = "Answer in one sentence. Cite the page that you rely on, and say so when you do not know the answer."
TEXTS = f"""from datetime import datetime

def make():
    return f"It is {{datetime.now()}}. {RULES}"
"""
MAIN = """from openai import OpenAI
{imports}

client = OpenAI()

def ask(question):
    messages = [{{"role": "system", "content": {text}}}, {{"role": "user", "content": question}}]
    return client.chat.completions.create(model="m", messages=messages)
"""


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"pyproject.toml": "", "app/__init__.py": "", **files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def check(file: Path, modules: ModuleFinder | None = None) -> list[Finding]:
    return check_python(file.read_text(encoding="utf-8"), str(file), modules)


def codes(folder: Path, imports: str, text: str, texts: str = TEXTS) -> list[str]:
    main = MAIN.format(imports=imports, text=text)
    project(folder, {"app/main.py": main, "app/texts.py": texts})
    return [finding.code for finding in check(folder / "app/main.py")]


WAYS = [
    ("from app.texts import make", "make()"),
    ("from .texts import make", "make()"),
    ("from texts import make", "make()"),
    ("from . import texts", "texts.make()"),
    ("from app import texts as t", "t.make()"),
    ("import app.texts as t", "t.make()"),
    ("import app.texts", "app.texts.make()"),
    ("from .texts import *", "make()"),
    ("from app.texts import make as head", '"You are helpful. " + head()'),
]


@pytest.mark.parametrize(("imports", "text"), WAYS)
def test_a_text_from_another_module_is_followed(tmp_path, imports, text):
    assert codes(tmp_path, imports, text) == ["AC101"]
    assert codes(tmp_path, imports, text, TEXTS.replace("{datetime.now()}", "late")) == []


def test_the_finding_stands_at_the_use_and_names_the_other_file_and_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main = MAIN.format(imports="from app.texts import make", text="make()")
    project(tmp_path, {"app/main.py": main, "app/texts.py": TEXTS})
    (finding,) = check(Path("app/main.py"))
    line = main.splitlines()[finding.location.record - 1]
    assert finding.location.file == os.path.join("app", "main.py")
    assert line[finding.location.char :].startswith("make()}")
    assert f"datetime.now(), line 4 of {os.path.join('app', 'texts.py')}" in finding.message
    assert finding.confidence == "suspected"
    assert finding.fix.edits == ()
    assert check(Path("app/texts.py")) == []


def test_what_a_linted_file_tells_itself_is_told_once(tmp_path):
    texts = TEXTS.replace("make", "build_system_prompt")
    main = MAIN.format(imports="from app.texts import build_system_prompt", text="build_system_prompt()")
    folder = project(tmp_path, {"app/main.py": main, "app/texts.py": texts}) / "app"
    files = [folder / "main.py", folder / "texts.py"]
    both = ModuleFinder(linted=[str(file) for file in files])
    found = [finding for file in files for finding in check(file, both)]
    assert [(finding.code, Path(finding.location.file).name) for finding in found] == [("AC101", "texts.py")]
    alone = check(files[0], ModuleFinder(linted=[str(files[0])]))
    assert [(finding.code, Path(finding.location.file).name) for finding in alone] == [("AC101", "main.py")]
    assert check(files[0]) == []


def test_a_name_is_followed_through_the_package_that_hands_it_on(tmp_path):
    files = {
        "app/main.py": MAIN.format(imports="from app.texts import make", text="make()"),
        "app/texts/__init__.py": "from .daily import make\n",
        "app/texts/daily.py": TEXTS,
    }
    (finding,) = check(project(tmp_path, files) / "app/main.py")
    assert finding.code == "AC101"


def test_modules_are_followed_three_deep_and_no_further(tmp_path):
    files = {"app/main.py": MAIN.format(imports="from .m1 import make", text="make()")}
    for number in (1, 2):
        files[f"app/m{number}.py"] = f"from . import m{number + 1}\n\ndef make():\n    return m{number + 1}.make()\n"
    assert [finding.code for finding in check(project(tmp_path, {**files, "app/m3.py": TEXTS}) / "app/main.py")] == [
        "AC101"
    ]
    deeper = {"app/m3.py": "from . import m4\n\ndef make():\n    return m4.make()\n", "app/m4.py": TEXTS}
    assert check(project(tmp_path, {**files, **deeper}) / "app/main.py") == []


def test_arguments_go_into_the_other_module_and_come_back(tmp_path):
    texts = f'def head(stamp, rules="{RULES}"):\n    return f"It is {{stamp}}. {{rules}}"\n'
    imports = "import time\nfrom app.texts import head"
    assert codes(tmp_path, imports, "head(time.time())", texts) == ["AC101"]
    assert codes(tmp_path, imports, 'head("noon")', texts) == []


def test_what_another_module_is_given_keeps_its_name_and_its_own_names_say_nothing(tmp_path):
    long = f"{RULES} {RULES}"
    texts = f'def head(it=None, memory=None):\n    return f"{{it}} {{memory}} {long}"\n'
    user = """from app.texts import head

class MemorySchema: ...

def ask(client, user_name, question):
    return client.responses.create(model="m", instructions=head({given}), input=question)
"""
    folder = project(tmp_path, {"app/main.py": user.format(given="user_name"), "app/texts.py": texts})
    assert [finding.code for finding in check(folder / "app/main.py")] == ["AC105"]
    for given in ("", "MemorySchema", '"you"'):
        project(tmp_path, {"app/main.py": user.format(given=given)})
        assert check(folder / "app/main.py") == []


def test_a_template_and_a_set_in_another_module_are_read(tmp_path):
    texts = f'TEMPLATE = "It is {{date}}. {RULES}"\nTAGS = {{"a", "b"}}\nNAMES = sorted(TAGS)\n'
    imports = "import time\nfrom app.texts import NAMES, TAGS, TEMPLATE"
    assert codes(tmp_path, imports, "TEMPLATE.format(date=time.ctime())", texts) == ["AC101"]
    assert codes(tmp_path, imports, 'TEMPLATE.replace("{date}", time.ctime())', texts) == ["AC101"]
    assert codes(tmp_path, imports, 'TEMPLATE.format(date="noon")', texts) == []
    assert codes(tmp_path, imports, '"Tags: " + ", ".join(TAGS)', texts) == ["AC203"]
    assert codes(tmp_path, imports, '"Tags: " + ", ".join(NAMES)', texts) == []


def test_a_method_of_an_imported_class_is_followed(tmp_path):
    texts = f"""import time

class Prompts:
    def text(self):
        return f"It is {{time.time()}}. {RULES}"
"""
    assert codes(tmp_path, "from app.texts import Prompts", "Prompts().text()", texts) == ["AC101"]
    assert codes(tmp_path, "from app.texts import Prompts\n\nprompts = Prompts()", "prompts.text()", texts) == ["AC101"]


def test_a_base_class_in_another_module_is_followed(tmp_path):
    texts = f"""import time

class Base:
    def head(self):
        return f"It is {{time.time()}}. {RULES}"
"""
    main = """from app.texts import Base

class Chat(Base):
    def ask(self, client, question):
        return client.responses.create(model="m", instructions=self.head(), input=question)
"""
    folder = project(tmp_path, {"app/main.py": main, "app/texts.py": texts})
    assert [finding.code for finding in check(folder / "app/main.py")] == ["AC101"]
    project(tmp_path, {"app/texts.py": texts.replace("{time.time()}", "late")})
    assert check(folder / "app/main.py") == []


def test_tools_from_another_module_keep_their_order(tmp_path):
    agent = "from agents import Agent\nfrom app.tools import TOOLS\n\nagent = Agent(name='a', tools=TOOLS)\n"
    folder = project(tmp_path, {"app/main.py": agent, "app/tools.py": "TOOLS = list({1.5, read})\n"})
    (finding,) = check(folder / "app/main.py")
    assert finding.code == "AC203"
    assert "line 1 of " in finding.message
    project(tmp_path, {"app/tools.py": "TOOLS = [read, write]\n"})
    assert check(folder / "app/main.py") == []


@pytest.mark.parametrize(
    "texts",
    [
        "from app.main import ask as make\n",
        "from app.texts import make\n",
        "from .texts import other as make\nfrom .texts import make as other\n",
        "def make(:\n",
        "x = '\0'\n",
        "def make():\n    return make()\n",
        "from app.main import head\n\ndef make():\n    return head() + make()\n",
        "class make:\n    pass\n",
        "# " + "x" * 600_000 + "\n" + TEXTS,
        "",
    ],
)
def test_circles_and_odd_modules_are_borne(tmp_path, texts):
    assert codes(tmp_path, "from app.texts import make", "make()", texts) == []


def test_a_text_without_a_file_follows_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(project(tmp_path, {"app/texts.py": TEXTS}))
    assert check_python(MAIN.format(imports="from app.texts import make", text="make()"), "<stdin>") == []


def test_a_changed_module_is_read_again_and_another_only_once(tmp_path, monkeypatch):
    main = MAIN.format(imports="from app.texts import make", text="make()")
    folder = project(tmp_path, {"app/main.py": main, "app/other.py": main, "app/texts.py": TEXTS}) / "app"
    reads: list[str] = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path.name) or read(path))
    finder = ModuleFinder()
    assert len(check(folder / "main.py", finder)) == len(check(folder / "other.py", finder)) == 1
    assert reads == ["texts.py"]
    (folder / "texts.py").write_text("def make():\n    return 'You are helpful.'\n")
    assert check(folder / "main.py", finder) == []
    assert reads == ["texts.py", "texts.py"]
