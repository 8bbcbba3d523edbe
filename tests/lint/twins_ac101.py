from lint_twins import Twin
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, SECONDS, UUIDS, apart, growing, tool, with_tools

MINUTES = tuple(stamp[:16] for stamp in SECONDS)
DAYS = ("2026-11-29", "2026-11-30", "2026-12-01", "2026-12-02")
UNITS = {"second": SECONDS, "minute": MINUTES, "day": DAYS}
PLACES = {
    "head": "It is {}. " + RULES,
    "middle": RULES + "It is {}. " + MORE_RULES,
    "end": RULES + "Current time: {}",
}
WAYS = {
    "ctime": ("Sun Nov 29 10:30:05 UTC 2026", "Sun Nov 29 10:31:47 UTC 2026", "Sun Nov 29 10:33:12 UTC 2026"),
    "words": ("November 29, 2026 at 9:59 AM", "November 29, 2026 at 10:00 AM", "November 29, 2026 at 10:02 AM"),
    "milliseconds since 1970": ("1764428557123", "1764428999001", "1764429100404"),
    "ISO with a fraction": (
        "2026-11-29T10:30:05.123456+00:00",
        "2026-11-29T10:30:06.654321+00:00",
        "2026-11-29T10:30:09.100000+00:00",
    ),
    "weekday and date": ("Sunday, 29 November 2026", "Monday, 30 November 2026", "Tuesday, 1 December 2026"),
    "Chinese date": ("2026年11月29日", "2026年11月30日", "2026年12月1日"),
}


def stamped(k, turn):
    """Each message with the time at which it was said, for good."""
    return f"[{SECONDS[k]}] {QUESTIONS[k]}"


def status(stamp):
    return [tool("status", f'Says "ready" or "busy".\nCurrent time: {stamp}. Ask it before each step.')]


TWINS = [
    *(
        Twin(
            "AC101",
            f"{unit} at the {place}",
            failing=growing(lambda turn, text=text, stamps=stamps: text.format(stamps[turn])),
            clean=growing(lambda turn, text=text, stamps=stamps: text.format(stamps[0])),
            path="messages[0].content",
        )
        for place, text in PLACES.items()
        for unit, stamps in UNITS.items()
    ),
    *(
        Twin(
            "AC101",
            way,
            failing=growing(lambda turn, stamps=stamps: f"Today: {stamps[turn]}\n{RULES}"),
            clean=growing(lambda turn, stamps=stamps: f"Today: {stamps[0]}\n{RULES}"),
            path="messages[0].content",
        )
        for way, stamps in WAYS.items()
    ),
    Twin(
        "AC101",
        "stamp of the newest message alone, in front",
        failing=growing(said=lambda k, turn: (f"[{SECONDS[k]}] " if k == turn else "") + QUESTIONS[k], session="a"),
        clean=growing(said=stamped, session="a"),
        path="messages[1].content",
    ),
    Twin(
        "AC101",
        "stamp moves to the last message and is dropped from history",
        failing=growing(
            said=lambda k, turn: QUESTIONS[k] + (f"\n\nCurrent time: {SECONDS[k]}" if k == turn else ""),
            turns=4,
            session="a",
        ),
        clean=growing(said=lambda k, turn: f"{QUESTIONS[k]}\n\nCurrent time: {SECONDS[k]}", turns=4, session="a"),
        path="messages[1].content",
    ),
    *(
        Twin(
            "AC101",
            f"stamp dropped from a conversation without a name, {turns} turns",
            failing=growing(said=lambda k, turn: (f"[{SECONDS[k]}] " if k == turn else "") + QUESTIONS[k], turns=turns),
            clean=growing(said=stamped, turns=turns),
            path="messages[1].content",
        )
        for turns in (2, 4)
    ),
    Twin(
        "AC101",
        "all messages are stamped anew each turn",
        failing=growing(said=lambda k, turn: f"[{SECONDS[turn]}] {QUESTIONS[k]}"),
        clean=growing(said=stamped),
        path="messages[1].content",
    ),
    Twin(
        "AC101",
        "replies are stamped when they are stored",
        failing=growing(
            replied=lambda k, turn: (
                (f"[{SECONDS[k]}] " if k < turn - 1 else "") + f"I looked into it, and the answer is on page {k}."
            ),
            turns=4,
        ),
        clean=growing(replied=lambda k, turn: f"I looked into it, and the answer is on page {k}.", turns=4),
        path="messages[2].content",
    ),
    Twin(
        "AC101",
        "clock in a tool",
        failing=with_tools(growing(), lambda turn: status(SECONDS[turn])),
        clean=with_tools(growing(), lambda turn: status(SECONDS[0])),
        path="tools[0].function.description",
    ),
    Twin(
        "AC101",
        "sessions of different days",
        failing=apart([f"Date: {day}\n{RULES}" for day in DAYS]),
        clean=apart([f"Date: {DAYS[0]}\n{RULES}"] * 4),
        path="messages[0].content",
    ),
    Twin(
        "AC101",
        "a single request",
        failing=growing(lambda turn: f"It is {SECONDS[0]}. {RULES}", turns=1),
        clean=growing(lambda turn: f"Dates look like {SECONDS[0]}. {RULES}", turns=1),
        path="messages[0].content",
    ),
    Twin(
        "AC101",
        "a changelog with dates",
        failing=growing(lambda turn: f"Now: {SECONDS[turn]}\nChangelog:\n2026-11-20: the cart is kept.\n{RULES}"),
        clean=apart(
            [
                f"Changelog:\n{new}2026-11-20: the cart is kept.\n2026-11-02: orders can be cancelled.\n{RULES}"
                for new in ("", "2026-11-28: names may be longer.\n")
            ]
        ),
    ),
    Twin(
        "AC101",
        "a log in the system text",
        failing=growing(lambda turn: f"{RULES}\nTime: {SECONDS[turn]}\n{MORE_RULES}"),
        clean=growing(
            lambda turn: f"{RULES}\n2026-11-29 10:30:05 build failed\n2026-11-29 10:31:00 build passed\n{MORE_RULES}",
            turns=1,
        ),
    ),
    Twin(
        "AC101",
        "cut-off dates and opening hours",
        failing=growing(lambda turn: f"Knowledge cutoff: June 2024. Current date and time: {MINUTES[turn]}. {RULES}"),
        clean=growing(lambda turn: f"Knowledge cutoff: June 2024. We are open from 9:00 to 17:30. {RULES}", turns=1),
    ),
    Twin(
        "AC101",
        "the time at the end of two sessions",
        failing=growing(lambda turn: f"{RULES}\n\nCurrent time: {SECONDS[turn]}", turns=2),
        clean=apart([f"{RULES}\n\nRun of: {stamp} {uuid}" for stamp, uuid in zip(SECONDS, UUIDS)]),
    ),
    Twin(
        "AC101",
        "a placeholder in a prompt file",
        failing={"agent.prompt": f"Today is {{current_date}}.\n{RULES}"},
        clean={"agent.prompt": f"Write dates as {{year}}-{{month}}-{{day}}.\n{RULES}"},
    ),
]
