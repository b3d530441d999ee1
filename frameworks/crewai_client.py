"""CrewAI: what its agents do when they delegate to a remote one, without the model that decides to."""

from typing import Any

from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation
from trial import ASK, COUNT, REPLY, run


async def _delegated(base: str, text: str, **more: Any) -> Any:
    endpoint = f"{base}/.well-known/agent-card.json"
    return await aexecute_a2a_delegation(
        endpoint=endpoint, auth=None, timeout=30, task_description=text, **more
    )


def _told(result: Any) -> str:
    return result.get("result") or f"{result['status']}: {result.get('error')}"


async def send(base: str) -> str:
    return _told(await _delegated(base, COUNT, updates=PollingConfig(interval=0.1)))


async def stream(base: str) -> str:
    return _told(await _delegated(base, COUNT, updates=StreamingConfig()))


async def question(base: str) -> str:
    asked = await _delegated(base, ASK, updates=PollingConfig(interval=0.1))
    last = asked["history"][-1]
    more = {"task_id": last.task_id, "context_id": last.context_id, "conversation_history": asked["history"]}
    return _told(await _delegated(base, REPLY, updates=PollingConfig(interval=0.1), **more))


run(send, stream, question)
