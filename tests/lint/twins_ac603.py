from lint_twins import Twin
from twin_parts import called, growing, sent, system, user


def each(requests, **fields):
    """``fields``: a list of values for each name."""
    names = list(fields)
    return [{**body, **dict(zip(names, values))} for body, *values in zip(requests, *fields.values())]


TWINS = [
    Twin(
        "AC603",
        "in the name of the model",
        failing=each(growing(3), model=["base:sql", "base:sql", "base:prose"]),
        clean=each(growing(3), model=["base:sql"] * 3),
        path="model",
    ),
    Twin(
        "AC603",
        "in a field of its own",
        failing=each(called(2), lora=["sql", "prose", "sql"]),
        clean=each(called(2), lora=["sql"] * 3),
        path="lora",
    ),
    Twin(
        "AC603",
        "in an object",
        failing=each(growing(3), lora_request=[{"lora_name": name} for name in ("sql", "sql", "prose")]),
        clean=each(growing(3), lora_request=[{"lora_name": "sql"}] * 3),
    ),
    Twin(
        "AC603",
        "to the model alone",
        failing=each(growing(3), model=["base:sql", "base:sql", "base"]),
        clean=[*growing(3, model="base:sql"), *sent(system(), user("Name this conversation."), model="base")],
    ),
]
