import unicodedata

from lint_twins import Twin
from text_twin_parts import RULES, apart, growing, tool, with_tools

GERMAN = "Antworte immer auf Französisch oder Dänisch, nie in einer dritten Sprache. "
REPLY = "Der Schlüssel für die Tür liegt über dem Türrahmen, und das Café gegenüber öffnet früh."


def form(text, composed):
    return unicodedata.normalize("NFC" if composed else "NFD", text)


TWINS = [
    Twin(
        "AC205",
        "accents of the system text",
        failing=growing(lambda turn: form(GERMAN, turn % 2) + RULES),
        clean=growing(lambda turn: form(GERMAN, True) + RULES),
        path="messages[0].content",
    ),
    Twin(
        "AC205",
        "from machine to machine",
        failing=apart([form(GERMAN, n == 1) + RULES for n in range(3)]),
        clean=apart([form(GERMAN, False) + RULES for n in range(3)]),
        path="messages[0].content",
    ),
    Twin(
        "AC205",
        "replies that went through a file name",
        failing=growing(replied=lambda k, turn: form(REPLY, k == turn - 1), turns=4),
        clean=growing(replied=lambda k, turn: form(REPLY, False), turns=4),
        path="messages[2].content",
    ),
    Twin(
        "AC205",
        "messages that are composed when they are replayed",
        failing=growing(said=lambda k, turn: form(f"{GERMAN} {k}", k < turn), session="a"),
        clean=growing(said=lambda k, turn: form(f"{GERMAN} {k}", False), session="a"),
        path="messages[1].content",
    ),
    Twin(
        "AC205",
        "Korean syllables",
        failing=apart([form("한국어로 대답하세요. ", n == 0) + RULES for n in range(2)]),
        clean=apart([form("한국어로 대답하세요. ", True) + RULES for n in range(2)]),
    ),
    Twin(
        "AC205",
        "a tool's text",
        failing=with_tools(growing(), lambda turn: [tool(description=form("Übersetzt jeden Text.", turn % 2))]),
        clean=with_tools(growing(), lambda turn: [tool(description=form("Übersetzt jeden Text.", True))]),
        path="tools[0].function.description",
    ),
    Twin(
        "AC205",
        "newest messages of two users",
        failing=apart([form(GERMAN, n) + RULES for n in range(2)]),
        clean=apart([RULES] * 2, [form(GERMAN, n) for n in range(2)]),
    ),
]
