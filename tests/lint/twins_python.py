"""Twins of the check of Python sources: agents as people write them, and the same without the defect."""

from __future__ import annotations

from lint_twins import Twin

RULES = "Answer in one sentence. Cite the page that you rely on, and say so when you do not know the answer."
"""Text that is the same for all, longer than what the check thinks worth saving."""
CLIENT = "from openai import OpenAI\n\nclient = OpenAI()\n"


def _twin(code: str, name: str, failing: str, clean: str, path: str | None = None) -> Twin:
    texts = ({"agent.py": part.replace("RULES", RULES)} for part in (failing, clean))
    return Twin(code, name, next(texts), next(texts), path=path)


TIMES = [
    _twin(
        "AC101",
        "clock in the system text",
        f"""from datetime import datetime
{CLIENT}
def ask(question, history):
    now = datetime.now()
    system = f"You are helpful. It is {{now:%H:%M:%S}}."
    messages = [{{"role": "system", "content": system}}, *history, {{"role": "user", "content": question}}]
    return client.chat.completions.create(model="m", messages=messages)
""",
        f"""from datetime import datetime
{CLIENT}
def ask(question, history):
    now = datetime.now()
    system = "You are helpful."
    newest = f"{{question}}\\n\\nIt is {{now:%H:%M:%S}}."
    messages = [{{"role": "system", "content": system}}, *history, {{"role": "user", "content": newest}}]
    return client.chat.completions.create(model="m", messages=messages)
""",
        path="ask",
    ),
    _twin(
        "AC101",
        "clock behind a helper and a percent",
        f"""import time
{CLIENT}
SYSTEM = "You are helpful. (%s) RULES"

def stamp():
    return time.strftime("%Y-%m-%d %H:%M")

def ask(question):
    return client.responses.create(model="m", instructions=SYSTEM % stamp(), input=question)
""",
        f"""import time
{CLIENT}
SYSTEM = "You are helpful. (%s) RULES"

def stamp():
    return time.strftime("%Y")

def ask(question):
    return client.responses.create(model="m", instructions=SYSTEM % stamp(), input=question)
""",
    ),
    _twin(
        "AC101",
        "dynamic instructions of an agent",
        """import datetime as dt
from pydantic_ai import Agent

agent = Agent("openai:gpt-4o")

@agent.system_prompt
def today():
    return "It is {} o'clock. RULES".format(dt.datetime.now().isoformat())
""",
        """import datetime as dt
from pydantic_ai import Agent

agent = Agent("openai:gpt-4o")

@agent.tool_plain
def now():
    return "It is {} o'clock. RULES".format(dt.datetime.now().isoformat())
""",
        path="today",
    ),
    _twin(
        "AC101",
        "clock written over the first message",
        f"""import time
{CLIENT}
class Chat:
    def __init__(self):
        self.messages = [{{"role": "system", "content": "You are helpful."}}]

    def ask(self, question):
        self.messages[0]["content"] = f"You are helpful. Seconds: {{time.time()}}"
        self.messages.append({{"role": "user", "content": question}})
        return client.chat.completions.create(model="m", messages=self.messages)
""",
        f"""import time
{CLIENT}
class Chat:
    def __init__(self):
        self.messages = [{{"role": "system", "content": "You are helpful."}}]

    def ask(self, question):
        self.messages.append({{"role": "user", "content": question}})
        self.messages[-1]["content"] += f" Seconds: {{time.time()}}"
        return client.chat.completions.create(model="m", messages=self.messages)
""",
        path="Chat.ask",
    ),
    _twin(
        "AC101",
        "clock in a session's system text",
        """from datetime import datetime
from agentcache_sdk import Client

def run(task):
    with Client().session(system=f"Time: {datetime.now()}. RULES") as session:
        return session.send(task)
""",
        """from datetime import datetime
from agentcache_sdk import Client

def run(task):
    with Client().session(system="RULES") as session:
        return session.send(task, volatile={"time": str(datetime.now())})
""",
    ),
    _twin(
        "AC101",
        "system reminder at the end",
        f"""from datetime import datetime
{CLIENT}
def ask(history):
    reminder = {{"role": "system", "content": f"It is {{datetime.now()}}"}}
    return client.chat.completions.create(model="m", messages=[reminder] + history)
""",
        f"""from datetime import datetime
{CLIENT}
def ask(history):
    reminder = {{"role": "system", "content": f"It is {{datetime.now()}}"}}
    return client.chat.completions.create(model="m", messages=history + [reminder])
""",
    ),
]

OTHER_SLOTS = [
    _twin(
        "AC102",
        "run id in front of the rules",
        f"""import uuid
{CLIENT}
def ask(question):
    run = uuid.uuid4().hex[:8]
    messages = [{{"role": "system", "content": "Run " + run + ". RULES"}}, {{"role": "user", "content": question}}]
    return client.chat.completions.create(model="m", messages=messages)
""",
        f"""import uuid
{CLIENT}
def ask(question):
    run = uuid.uuid5(uuid.NAMESPACE_URL, "agent").hex[:8]
    messages = [{{"role": "system", "content": "Run " + run + ". RULES"}}, {{"role": "user", "content": question}}]
    return client.chat.completions.create(model="m", messages=messages, user=str(uuid.uuid4()))
""",
        path="ask",
    ),
    _twin(
        "AC102",
        "scratch folder",
        """import tempfile
from agents import Agent

def make():
    with tempfile.TemporaryDirectory() as folder:
        return Agent(name="a", instructions=f"Write into {folder}. RULES")
""",
        """import tempfile
from agents import Agent

def make():
    with tempfile.TemporaryDirectory() as folder:
        return Agent(name="a", instructions="Write into the scratch folder. RULES"), folder
""",
    ),
    _twin(
        "AC103",
        "counter of the loop",
        f"""{CLIENT}
def run(history):
    for step in range(20):
        messages = [{{"role": "system", "content": f"This is step {{step}} of 20."}}, *history]
        history.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
""",
        f"""{CLIENT}
def run(history):
    for step in range(20):
        newest = {{"role": "user", "content": f"This is step {{step}} of 20."}}
        messages = [{{"role": "system", "content": "You work in 20 steps."}}, *history, newest]
        history.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
""",
        path="run",
    ),
    _twin(
        "AC104",
        "working directory before the rules",
        """import os
from langchain_core.messages import SystemMessage

def head():
    return SystemMessage(content=f"You are in {os.getcwd()}.\\nRULES")
""",
        """import os
from langchain_core.messages import SystemMessage

def head():
    return SystemMessage(content=f"RULES\\nYou are in {os.getcwd()}.")
""",
        path="head",
    ),
    _twin(
        "AC105",
        "user before the rules",
        f"""{CLIENT}
def ask(user_name, question):
    messages = [
        {{"role": "system", "content": f"You help {{user_name}}. RULES"}},
        {{"role": "user", "content": question}},
    ]
    return client.chat.completions.create(model="m", messages=messages)
""",
        f"""{CLIENT}
def ask(user_name, question):
    messages = [
        {{"role": "system", "content": f"RULES You help {{user_name}}."}},
        {{"role": "user", "content": question}},
    ]
    return client.chat.completions.create(model="m", messages=messages)
""",
    ),
    _twin(
        "AC106",
        "documents before the rules",
        f"""{CLIENT}
def ask(retriever, question):
    docs = retriever.search(question)
    text = "\\n".join(doc.text for doc in docs)
    return client.chat.completions.create(
        model="m",
        messages=[{{"role": "system", "content": f"{{text}}\\nRULES"}}, {{"role": "user", "content": question}}],
    )
""",
        f"""{CLIENT}
def ask(retriever, question):
    docs = retriever.search(question)
    text = "\\n".join(doc.text for doc in docs)
    return client.chat.completions.create(
        model="m",
        messages=[{{"role": "system", "content": f"RULES\\n{{text}}"}}, {{"role": "user", "content": question}}],
    )
""",
    ),
]

ORDERS = [
    _twin(
        "AC203",
        "joined set",
        f"""{CLIENT}
def ask(question, topics):
    known = set(topic.strip() for topic in topics)
    system = "Topics: " + ", ".join(known)
    return client.responses.create(model="m", instructions=system, input=question)
""",
        f"""{CLIENT}
def ask(question, topics):
    known = set(topic.strip() for topic in topics)
    system = "Topics: " + ", ".join(sorted(known))
    return client.responses.create(model="m", instructions=system, input=question)
""",
        path="ask",
    ),
    _twin(
        "AC203",
        "folder in a loop",
        f"""import os
{CLIENT}
def ask(question):
    system = "Files:\\n"
    for name in os.listdir("."):
        system += f"- {{name}}\\n"
    return client.responses.create(model="m", instructions=system, input=question)
""",
        f"""import os
{CLIENT}
def ask(question):
    system = "Files:\\n"
    names = os.listdir(".")
    names.sort()
    for name in names:
        system += f"- {{name}}\\n"
    return client.responses.create(model="m", instructions=system, input=question)
""",
    ),
    _twin(
        "AC203",
        "tools from a set",
        """from agents import Agent

def make(search, read):
    return Agent(name="a", tools=list({search, read}))
""",
        """from agents import Agent

def make(search, read):
    return Agent(name="a", tools=list([search, read]))
""",
    ),
    _twin(
        "AC202",
        "shuffled tools",
        f"""import random
{CLIENT}
def ask(tools, messages):
    random.shuffle(tools)
    return client.chat.completions.create(model="m", messages=messages, tools=tools)
""",
        f"""import random
{CLIENT}
def ask(tools, messages, servers):
    random.shuffle(servers)
    return client.chat.completions.create(model="m", messages=messages, tools=tools)
""",
    ),
    _twin(
        "AC301",
        "tools taken away at the end",
        f"""{CLIENT}
def run(messages, tools):
    for step in range(10):
        reply = client.chat.completions.create(model="m", messages=messages, tools=tools if step < 9 else None)
        messages.append(reply.choices[0].message)
""",
        f"""{CLIENT}
def run(messages, tools):
    for step in range(10):
        choice = "auto" if step < 9 else "none"
        reply = client.chat.completions.create(model="m", messages=messages, tools=tools, tool_choice=choice)
        messages.append(reply.choices[0].message)
""",
        path="run",
    ),
    _twin(
        "AC601",
        "models in turn",
        f"""{CLIENT}
MODELS = ["a", "b"]

def run(messages):
    for step in range(10):
        reply = client.chat.completions.create(model=MODELS[step % 2], messages=messages)
        messages.append(reply.choices[0].message)
""",
        f"""{CLIENT}
MODELS = ["a", "b"]

def run(conversations):
    for step, messages in enumerate(conversations):
        reply = client.chat.completions.create(model=MODELS[step % 2], messages=messages)
        messages.append(reply.choices[0].message)
""",
    ),
]

REPLAYS = [
    _twin(
        "AC207",
        "arguments written again",
        """import json

def replay(message):
    calls = []
    for call in message.tool_calls:
        arguments = json.loads(call.function.arguments)
        calls.append({"id": call.id, "type": "function",
                      "function": {"name": call.function.name, "arguments": json.dumps(arguments)}})
    return {"role": "assistant", "tool_calls": calls}
""",
        """import json

def replay(message, run):
    calls = []
    for call in message.tool_calls:
        run(**json.loads(call.function.arguments))
        calls.append({"id": call.id, "type": "function",
                      "function": {"name": call.function.name, "arguments": call.function.arguments}})
    return {"role": "assistant", "tool_calls": calls}
""",
        path="replay",
    ),
    _twin(
        "AC208",
        "fresh ids",
        """import uuid

def replay(message):
    calls = [{"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": call.function.model_dump()}
             for call in message.tool_calls]
    return {"role": "assistant", "tool_calls": calls}
""",
        """import uuid

def parse(text, find_calls):
    calls = [{"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": call}
             for call in find_calls(text)]
    return {"role": "assistant", "tool_calls": calls}
""",
        path="replay",
    ),
    _twin(
        "AC405",
        "reasoning taken out",
        f"""{CLIENT}
def ask(messages):
    for message in messages:
        message.pop("reasoning_content", None)
    return client.chat.completions.create(model="m", messages=messages)
""",
        f"""{CLIENT}
def ask(messages, shown):
    for message in shown:
        message.pop("reasoning_content", None)
    return client.chat.completions.create(model="m", messages=messages)
""",
    ),
]

HISTORIES = [
    _twin(
        "AC401",
        "system text rewritten in each turn",
        f"""{CLIENT}
def run(recall):
    messages = [{{"role": "system", "content": "You are helpful."}}]
    while True:
        question = input()
        messages[0]["content"] = "You are helpful. You know: " + recall(question)
        messages.append({{"role": "user", "content": question}})
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
""",
        f"""{CLIENT}
SYSTEM = "You are helpful."

def run(recall):
    messages = [{{"role": "system", "content": ""}}]
    while True:
        question = input()
        messages[0]["content"] = SYSTEM
        messages.append({{"role": "user", "content": f"{{question}}\\n\\nYou know: {{recall(question)}}"}})
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
""",
        path="run",
    ),
    _twin(
        "AC402",
        "window in the call",
        f"""{CLIENT}
class Chat:
    def __init__(self):
        self.history = []

    def ask(self, question):
        self.history.append({{"role": "user", "content": question}})
        head = [{{"role": "system", "content": "You are helpful."}}]
        return client.chat.completions.create(model="m", messages=head + self.history[-20:])
""",
        f"""{CLIENT}
class Chat:
    def __init__(self):
        self.history = []

    def ask(self, question):
        self.history.append({{"role": "user", "content": question}})
        head = [{{"role": "system", "content": "You are helpful."}}]
        print(self.history[-20:])
        return client.chat.completions.create(model="m", messages=head + self.history)
""",
        path="Chat.ask",
    ),
    _twin(
        "AC402",
        "window at the limit",
        f"""{CLIENT}
def run():
    messages = [{{"role": "system", "content": "You are helpful."}}]
    while True:
        messages.append({{"role": "user", "content": input()}})
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
        if len(messages) > 21:
            messages = [messages[0]] + messages[-20:]
""",
        f"""{CLIENT}
def run():
    messages = [{{"role": "system", "content": "You are helpful."}}]
    while True:
        messages.append({{"role": "user", "content": input()}})
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
        if len(messages) > 100:
            messages = [messages[0]] + messages[-20:]
""",
        path="run",
    ),
    _twin(
        "AC402",
        "oldest taken out",
        """class Conversation:
    def __init__(self, limit):
        self.messages = []
        self.limit = limit

    def add(self, role, content):
        self.messages.append({"role": role, "content": content})
        while len(self.messages) > self.limit:
            self.messages.pop(1)
""",
        """class Conversation:
    def __init__(self, limit):
        self.messages = []
        self.limit = limit

    def add(self, role, content):
        self.messages.append({"role": role, "content": content})
        while len(self.messages) > self.limit:
            self.messages.pop()
""",
        path="Conversation.add",
    ),
    _twin(
        "AC402",
        "deque",
        f"""from collections import deque
{CLIENT}
class Chat:
    def __init__(self):
        self.history = deque(maxlen=20)

    def ask(self, question):
        self.history.append({{"role": "user", "content": question}})
        return client.chat.completions.create(model="m", messages=list(self.history))
""",
        f"""from collections import deque
{CLIENT}
class Chat:
    def __init__(self):
        self.history = deque()
        self.seconds = deque(maxlen=20)

    def ask(self, question):
        self.history.append({{"role": "user", "content": question}})
        return client.chat.completions.create(model="m", messages=list(self.history))
""",
        path="Chat.__init__",
    ),
    _twin(
        "AC402",
        "summary in place of the history",
        f"""{CLIENT}
def run(messages):
    while True:
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
        messages = messages[:1] + messages[-12:]
""",
        f"""{CLIENT}
def run(messages, summarize, count_tokens):
    while True:
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
        if count_tokens(messages) > 30_000:
            messages = messages[:1] + [summarize(messages)] + messages[-12:]
""",
    ),
    _twin(
        "AC404",
        "hint behind the system text",
        f"""{CLIENT}
def run(hint):
    messages = [{{"role": "system", "content": "You are helpful."}}]
    for step in range(10):
        messages.insert(1, {{"role": "user", "content": hint(step)}})
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
""",
        f"""{CLIENT}
def run(hint):
    messages = []
    for step in range(10):
        if not messages or messages[0]["role"] != "system":
            messages.insert(0, {{"role": "system", "content": "You are helpful."}})
        messages.append({{"role": "user", "content": hint(step)}})
        messages.append(client.chat.completions.create(model="m", messages=messages).choices[0].message)
""",
        path="run",
    ),
]

TWINS: list[Twin] = [
    *TIMES,
    *OTHER_SLOTS,
    *ORDERS,
    *REPLAYS,
    *HISTORIES,
    _twin("AC903", "no Python", "def ask(:\n    pass\n", "def ask():\n    pass\n"),
]
