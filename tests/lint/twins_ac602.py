from lint_twins import Twin
from twin_parts import called, growing, sent, system, user


def salted(requests, *salts):
    return [
        {**request, "cache_salt": salt} if salt is not None else dict(request) for request, salt in zip(requests, salts)
    ]


TWINS = [
    Twin(
        "AC602",
        "a new one for each request",
        failing=salted(growing(), "9f2c", "41d0", "77aa", "0b1e"),
        clean=salted(growing(), *["9f2c"] * 4),
        path="cache_salt",
    ),
    Twin(
        "AC602",
        "lost on the way",
        failing=salted(called(), "t17", "t17", None, None),
        clean=salted(called(), *["t17"] * 4),
    ),
    Twin(
        "AC602",
        "tenants have their own",
        failing=salted(growing(), "t17", "t17", "t17", "t18"),
        clean=[
            {**body, "cache_salt": salt}
            for salt in ("t17", "t18")
            for body in sent(system(), user(f"Fix the parser of {salt}."))
        ],
    ),
    Twin(
        "AC602",
        "tenants ask the same",
        failing=salted(growing(), None, "t17", "t17", "t17"),
        clean=[{**body, "cache_salt": salt} for salt in ("t17", "t18") for body in growing()],
    ),
]
