from lint_twins import Twin
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, UUIDS, apart, growing, tool, with_tools

SCRATCH = "Write temporary files to /tmp/agent-1000/-home-ann-shop/{}/scratchpad and nowhere else."
TWINS = [
    *(
        Twin(
            "AC102",
            f"session id at the {place}",
            failing=growing(lambda turn, text=text: text.format(UUIDS[turn])),
            clean=growing(lambda turn, text=text: text.format(UUIDS[0])),
            path="messages[0].content",
        )
        for place, text in {
            "head": "Session {}\n" + RULES,
            "middle": RULES + "Session id: {}. " + MORE_RULES,
            "end": RULES + "Session id: {}",
        }.items()
    ),
    Twin(
        "AC102",
        "a session id in a scratch path makes every fork miss",
        failing=apart([f"{RULES}\n{SCRATCH.format(uuid)}\n{MORE_RULES}" for uuid in UUIDS]),
        clean=apart([f"{RULES}\n{SCRATCH.format('current')}\n{MORE_RULES}" for _ in UUIDS]),
        path="messages[0].content",
    ),
    Twin(
        "AC102",
        "temporary folder",
        failing=apart([f"You work in /tmp/tmp{name}/repo. {RULES}" for name in ("x8k2_q1a", "0p9zzw3e", "ab77_ml0")]),
        clean=apart([f"You work in /tmp/shop/repo. {RULES}" for _ in range(3)]),
        path="messages[0].content",
    ),
    Twin(
        "AC102",
        "id of the request",
        failing=growing(lambda turn: f"request_id: req_{turn}8f3a1c99{turn}\n{RULES}"),
        clean=growing(lambda turn: f"request_id: none\n{RULES}"),
        path="messages[0].content",
    ),
    Twin(
        "AC102",
        "short id with a label",
        failing=apart([f"Run id: {value}. {RULES}" for value in ("a7", "b2", "c9")]),
        clean=apart([f"Run id: given in each message. {RULES}" for _ in range(3)]),
        path="messages[0].content",
    ),
    Twin(
        "AC102",
        "id in a tool",
        failing=with_tools(growing(), lambda turn: [tool(description=f"Translates. Trace {UUIDS[turn]}.")]),
        clean=with_tools(growing(), lambda turn: [tool(description=f"Translates. Trace {UUIDS[0]}.")]),
        path="tools[0].function.description",
    ),
    Twin(
        "AC102",
        "id of the newest message alone",
        failing=growing(
            said=lambda k, turn: QUESTIONS[k] + (f"\n<trace>{UUIDS[k]}</trace>" if k == turn else ""), session="a"
        ),
        clean=growing(said=lambda k, turn: f"{QUESTIONS[k]}\n<trace>{UUIDS[k]}</trace>", session="a"),
        path="messages[1].content",
    ),
    Twin(
        "AC102",
        "a single request",
        failing=growing(lambda turn: f"Conversation id: {UUIDS[0]}\n{RULES}", turns=1),
        clean=growing(lambda turn: f"The shop's id is {UUIDS[0]}, and model id gpt-20b. {RULES}", turns=1),
        path="messages[0].content",
    ),
    Twin(
        "AC102",
        "ids of customers at the end of two sessions",
        failing=apart([f"Customer {uuid}\n{RULES}" for uuid in UUIDS]),
        clean=apart([f"{RULES}\nCustomer {uuid}" for uuid in UUIDS]),
    ),
    Twin(
        "AC102",
        "paths that stay",
        failing=growing(lambda turn: f"Logs: /tmp/agent/{UUIDS[turn]}.log\n{RULES}"),
        clean=growing(lambda turn: f"Logs: /tmp/agent/current.log\n{RULES}", turns=1),
    ),
    Twin(
        "AC102",
        "a placeholder in a prompt file",
        failing={"agent.prompt": f"Session: {{{{ session_id }}}}\n{RULES}"},
        clean={"agent.prompt": f"Print ids as {{prefix}}-{{number}}.\n{RULES}"},
    ),
]
