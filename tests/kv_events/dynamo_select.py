"""Dynamo's selection service, asked line by line.  Runs in the environment of other projects' packages (`make test-cluster`).

Each line that comes in is a list of a name and its argument, in JSON::

    ["worker", {...}]        add or change a worker
    ["overlap", [ids]]       how much of a prompt every worker holds
    ["select", [ids]]        which worker gets the prompt
"""

import asyncio
import json
import sys

from dynamo.llm import SelectionService


async def answer(service, name, argument):
    if name == "worker":
        # A rank is a number here, which no JSON object can have as a key.
        ranks = {int(rank): address for rank, address in argument.pop("kv_events_endpoints").items()}
        return await service.upsert_worker({**argument, "kv_events_endpoints": ranks})
    ask = {"overlap": service.overlap_scores, "select": service.select}[name]
    return await ask({"model_name": "tiny", "token_ids": argument})


async def main():
    service = SelectionService(indexer_threads=1)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await answer(service, *json.loads(line))), flush=True)
    service.shutdown()


asyncio.run(main())
