from lint_twins import Twin
from twin_parts import called, from_request, growing, only_request, sent, system, user


def model(name):
    return lambda request: request.update(model=name)


def with_models(*names):
    requests = growing(len(names))
    return [{**request, "model": name} for request, name in zip(requests, names)]


TWINS = [
    Twin(
        "AC601",
        "for one turn",
        failing=with_models("large", "large", "small", "large"),
        clean=with_models("large", "large", "large", "large"),
        path="model",
    ),
    Twin(
        "AC601", "for good", failing=from_request(called(model="large"), 2, model("small")), clean=called(model="large")
    ),
    Twin(
        "AC601",
        "another conversation is another model's",
        failing=with_models("large", "small"),
        clean=[*growing(3, model="large"), *sent(system(), user("Name this conversation."), model="small")],
    ),
    Twin(
        "AC601",
        "both models are asked everything",
        failing=only_request(growing(model="large"), 3, model("small")),
        clean=[{**request, "model": name} for request in growing() for name in ("large", "small")],
    ),
    Twin(
        "AC601",
        "tags of sizes",
        failing=with_models("llama3:8b", "llama3:8b", "llama3:70b"),
        clean=with_models("llama3:8b", "llama3:8b", "llama3:8b"),
    ),
]
