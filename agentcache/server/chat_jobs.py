"""From a checked body of messages to a job: what every endpoint that takes a conversation shares."""

from __future__ import annotations

from dataclasses import replace

from agentcache.chat.replies.pieces import ReplyMessage
from agentcache.server.bodies import ChatBody
from agentcache.server.context import Context
from agentcache.server.conversations import begun, converse
from agentcache.server.endings import Namespace, PromptEnding
from agentcache.server.job import Job, Prompt, new_id
from agentcache.server.misses import Asked, Read
from agentcache.server.params import sampling_params
from agentcache.server.replies.plan import wanted
from agentcache.server.replies.reading import Arguments


def chat_job(
    context: Context, body: ChatBody, key: str | None, *, beginning: str = "", arguments: Arguments | None = None
) -> Job:
    """Render, tokenise, and plan the reply.  Takes a while for a long conversation: not on the event loop.

    Args:
        beginning: of the reply, which goes on from there; the reply that is known later is all of it.
        arguments: of calls, as the endpoint tells them; as they were written unless it has its own way.

    Raises:
        ApiError, RequestError, ChatTemplateError: what is wrong with the request.
    """
    context.check_model(body.model)
    params = sampling_params(body, context.engine.info.vocab_size)
    want = wanted(body, body.tools)
    home = context.desk.home(key, body.cache_salt)
    prompt = converse(context, body, home.root)
    job_id = new_id(context.settings.replica)
    reading, params = context.planner.plan(want, params, prompt.transcript.text, job_id, home.root)
    reading = replace(reading, arguments=arguments)
    read: Read = reading.read
    if beginning:
        prompt, read = begun(context, prompt, beginning), _from_its_beginning(read, beginning)
    asked = Asked(prompt, body.messages, body.tools, body.chat_template_kwargs, read)
    space = Namespace(key, home.root, body.cache_salt)
    ending = PromptEnding(context, space, [asked], "transcript" if prompt.kept.tokens else "template")
    prompts = [Prompt(prompt.ids, prompt.transcript.text)]
    return Job(
        body, prompts, params, home.root, home.owner, ending,
        reading=reading, id=job_id, asked=[asked], salt=body.cache_salt,
    )  # fmt: skip


def _from_its_beginning(read: Read, beginning: str) -> Read:
    def read_all(choice: int, text: str) -> ReplyMessage:
        reply = read(choice, text)
        reply.content = beginning + reply.content
        return reply

    return read_all
