from lint_twins import Twin
from text_twin_parts import MORE_RULES, QUESTIONS, RULES, apart, growing, system, user

DOCUMENTS = (
    "The shop opens at nine and closes at five, every day but Sunday. On holidays it opens at ten, and the phone is not "
    "answered. Parcels that come on a holiday are put out on the next day.",
    "Shoes can be returned within thirty days if they were not worn outside. The money comes back the way it was paid, "
    "within a week after the parcel has arrived. Socks cannot be returned.",
    "A name may have up to eighty letters of any script. Digits are allowed, signs are not. Names that somebody else has "
    "can be taken a second time, since the number of the account tells them apart.",
)
ANSWER = (
    "Answer from these alone, quote the sentence that you rely on, and say so when they do not answer the question. "
)


def hits(*numbers):
    return "".join(f"[{n + 1}] {DOCUMENTS[number]}\n" for n, number in enumerate(numbers))


def pieces(*numbers):
    return "".join(f"<document>\n{DOCUMENTS[number]}\n</document>\n" for number in numbers)


def sourced(*numbers):
    each = (
        f'<document index="{n + 1}">\n<source>page{number}.html</source>\n'
        f"<document_content>\n{DOCUMENTS[number]}\n</document_content>\n</document>\n"
        for n, number in enumerate(numbers)
    )
    return f"<documents>\n{''.join(each)}</documents>\n"


TWINS = [
    Twin(
        "AC106",
        "documents in tags",
        failing=apart([f"<documents>\n{text}\n</documents>\n{ANSWER}{RULES}" for text in DOCUMENTS]),
        clean=apart(
            [ANSWER + RULES] * 3, [f"<documents>\n{d}\n</documents>\n{q}" for d, q in zip(DOCUMENTS, QUESTIONS)]
        ),
        path="messages[0].content",
    ),
    Twin(
        "AC106",
        "documents one behind another, each in a tag",
        failing=apart([pieces(*order) + ANSWER + RULES for order in ((0, 1), (1, 2), (2, 0, 1))]),
        clean=apart([ANSWER + RULES + pieces(*order) for order in ((0, 1), (1, 2), (2, 0, 1))]),
        path="messages[0].content",
    ),
    Twin(
        "AC106",
        "documents with their sources in one tag",
        failing=apart([sourced(*order) + ANSWER + RULES for order in ((0, 1), (1, 2), (2, 0, 1))]),
        clean=apart([ANSWER + RULES + sourced(*order) for order in ((0, 1), (1, 2), (2, 0, 1))]),
        path="messages[0].content",
    ),
    Twin(
        "AC106",
        "context under a heading",
        failing=apart([f"{RULES}\nContext:\n{text}\n\n{ANSWER}{MORE_RULES}" for text in DOCUMENTS]),
        clean=apart([f"{RULES}\n{ANSWER}{MORE_RULES}\nContext:\n{text}" for text in DOCUMENTS]),
        path="messages[0].content",
    ),
    Twin(
        "AC106",
        "search results with numbers",
        failing=apart([f"Search results:\n{hits(*order)}\n{ANSWER}{RULES}" for order in ((0, 1), (1, 2), (2, 0, 1))]),
        clean=apart([f"{ANSWER}{RULES}\nSearch results:\n{hits(*order)}" for order in ((0, 1), (1, 2), (2, 0, 1))]),
        path="messages[0].content",
    ),
    Twin(
        "AC106",
        "retrieved anew each turn of a conversation",
        failing=growing(lambda turn: f"<context>\n{DOCUMENTS[turn]}\n</context>\n{ANSWER}{RULES}"),
        clean=growing(
            lambda turn: ANSWER + RULES,
            said=lambda k, turn: f"<context>\n{DOCUMENTS[k]}\n</context>\n{QUESTIONS[k]}",
        ),
        path="messages[0].content",
    ),
    Twin(
        "AC106",
        "retrieved once for a conversation",
        failing=growing(lambda turn: f"Relevant documents:\n{DOCUMENTS[turn]}\n\n{ANSWER}{RULES}"),
        clean=growing(lambda turn: f"Relevant documents:\n{DOCUMENTS[0]}\n\n{ANSWER}{RULES}"),
    ),
    Twin(
        "AC106",
        "documents in the last message, instructions behind them",
        failing=apart([f"Sources:\n{text}\n\n{ANSWER}{RULES}" for text in DOCUMENTS]),
        clean=[{"messages": [system(RULES), user(f"Sources:\n{text}\n\n{ANSWER}")]} for text in DOCUMENTS],
    ),
    Twin(
        "AC106",
        "a placeholder in a prompt file",
        failing={"agent.prompt": f"{{context}}\n\n{ANSWER}{RULES}"},
        clean={"agent.prompt": f"{ANSWER}{RULES}\n\n{{context}}"},
    ),
]
