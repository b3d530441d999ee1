"""Google's ADK: a remote agent, run as one of its own."""

import asyncio
import sys

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main(base: str, text: str) -> None:
    agent = RemoteA2aAgent(name="demo", agent_card=f"{base}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent=agent, app_name="t")
    session = await runner.session_service.create_session(app_name="t", user_id="u")
    said = types.Content(role="user", parts=[types.Part(text=text)])
    answer = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=said):
        if event.content and event.content.parts and not event.partial:
            answer = "".join(part.text or "" for part in event.content.parts if not part.thought)
    print(answer)


asyncio.run(main(*sys.argv[1:]))
