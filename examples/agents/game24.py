"""The game of 24: what ``tree_search.py`` searches in.  Code that knows the legal steps, and which of them lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

RULES = """You play the game of 24. You get some numbers and make 24 of them with + - * and /.
In each step you take two of the numbers that are left and put the result of one operation in their place.
Every number is used once. When one number is left, it has to be 24. A step after which 24 cannot be made is lost.
An example with the numbers 2 3 5 12:
Left: 2 3 5 12. Step: 5 / 2 = 5/2
Left: 5/2 3 12. Step: 3 - 5/2 = 1/2
Left: 1/2 12. Step: 12 / 1/2 = 24
Another one with the numbers 1 2 3 4:
Left: 1 2 3 4. Step: 1 * 2 = 2
Left: 2 3 4. Step: 2 * 3 = 6
Left: 4 6. Step: 4 * 6 = 24"""
GOAL = Fraction(24)


@dataclass(frozen=True)
class Term:
    """A number that is left, and how it was made."""

    value: Fraction
    text: str


Terms = tuple[Term, ...]


def legal_steps(terms: Terms) -> dict[str, Terms]:
    """All steps from here, as they are written, and what each leaves."""
    steps: dict[str, Terms] = {}
    for (i, a), (j, b) in permutations(enumerate(terms), 2):
        rest = tuple(term for k, term in enumerate(terms) if k not in (i, j))
        results = {"-": a.value - b.value} if a.value >= b.value else {}
        if b.value:
            results["/"] = a.value / b.value
        if i < j:
            results |= {"+": a.value + b.value, "*": a.value * b.value}
        for sign, value in results.items():
            made = Term(value, f"({a.text} {sign} {b.text})")
            left = tuple(sorted((*rest, made), key=lambda term: term.value))
            steps.setdefault(f"{a.value} {sign} {b.value} = {value}", left)
    return steps


def reachable(terms: Terms) -> bool:
    """Whether 24 can be made of these numbers."""
    if len(terms) == 1:
        return terms[0].value == GOAL
    return any(map(reachable, legal_steps(terms).values()))


def start(numbers: Sequence[int]) -> Terms:
    """
    Raises:
        ValueError: 24 cannot be made of them.
    """
    terms = tuple(Term(Fraction(number), str(number)) for number in sorted(numbers))
    if not reachable(terms):
        raise ValueError(f"{written(terms)} cannot be made {GOAL}: give other numbers")
    return terms


def written(terms: Terms) -> str:
    return " ".join(str(term.value) for term in terms)
