"""Google's ADK: a remote agent, run as one of its own."""

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types
from trial import ASK, COUNT, REPLY, run


async def _said(base: str, *texts: str, mode: StreamingMode = StreamingMode.NONE) -> str:
    agent = RemoteA2aAgent(name="demo", agent_card=f"{base}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent=agent, app_name="t")
    session = await runner.session_service.create_session(app_name="t", user_id="u")
    answer = ""
    for text in texts:
        said = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=said, run_config=RunConfig(streaming_mode=mode)
        ):
            if event.error_message:
                raise RuntimeError(event.error_message)
            if event.content and event.content.parts and not event.partial:
                answer = "".join(part.text or "" for part in event.content.parts if not part.thought)
    return answer


async def send(base: str) -> str:
    return await _said(base, COUNT)


async def stream(base: str) -> str:
    return await _said(base, COUNT, mode=StreamingMode.SSE)


async def question(base: str) -> str:
    return await _said(base, ASK, REPLY)


run(send, stream, question)
