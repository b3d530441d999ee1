"""pydantic-ai's fasta2a: its client posts `message/send` to the origin and reads the task until it ends."""

import asyncio
import uuid
from typing import Any

from fasta2a.client import A2AClient
from trial import ASK, COUNT, REPLY, run


def _message(text: str, **more: str) -> Any:
    return {"role": "user", "message_id": str(uuid.uuid4()), "parts": [{"text": text}], **more}


async def _settled(client: A2AClient, message: Any) -> Any:
    task = (await client.send_message(message))["result"]["task"]
    while task["status"]["state"] in {"submitted", "working"}:
        await asyncio.sleep(0.05)
        task = (await client.get_task(task["id"]))["result"]
    return task


async def send(base: str) -> str:
    return (await _settled(A2AClient(base), _message(COUNT)))["artifacts"][0]["parts"][0]["text"]


async def stream(base: str) -> str:
    artifact: list[str] = []
    async for event in A2AClient(base).stream_message(_message(COUNT)):
        if update := event["result"].get("artifact_update"):
            text = "".join(part["text"] for part in update["artifact"]["parts"])
            artifact = [*artifact, text] if update.get("append") else [text]
    return "".join(artifact)


async def question(base: str) -> str:
    client = A2AClient(base)
    asked = await _settled(client, _message(ASK))
    reply = _message(REPLY, task_id=asked["id"], context_id=asked["context_id"])
    return (await _settled(client, reply))["artifacts"][0]["parts"][0]["text"]


run(send, stream, question)
