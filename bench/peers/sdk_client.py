"""The client of the a2a-sdk at work: `sdk_client.py URL send|stream WARM SECONDS PARALLEL CHUNKS`."""

from __future__ import annotations

import sys

import httpx
import uvloop
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import new_text_part
from a2a.types import a2a_pb2 as pb
from calling import TEXT, measure


def _request(text: str) -> pb.SendMessageRequest:
    # A fresh id each: a message that comes twice would be answered with the task of the first.
    message = pb.Message(
        message_id=f"sdk-{next(_numbers)}", role=pb.Role.ROLE_USER, parts=[new_text_part(text)]
    )
    return pb.SendMessageRequest(message=message)


_numbers = iter(range(1 << 60))


async def main(url: str, mode: str, *amounts: str) -> None:
    """Find the card once, then call."""
    warm, seconds, parallel, chunks = map(float, amounts)
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(streaming=mode == "stream", httpx_client=http)).create(card)

        async def send() -> int:
            async for event in client.send_message(_request("echo hello")):
                if event.task.status.state == pb.TaskState.TASK_STATE_COMPLETED:
                    return 1
            return -1

        async def stream() -> int:
            count, size, state = 0, 0, None
            async for event in client.send_message(_request(f"chunks {chunks:.0f}")):
                count += 1
                if event.HasField("status_update"):
                    state = event.status_update.status.state
                for part in event.artifact_update.artifact.parts:
                    size += len(part.text)
            whole = state == pb.TaskState.TASK_STATE_COMPLETED and size == chunks * TEXT
            return count if whole else -1

        await measure(send if mode == "send" else stream, warm=warm, seconds=seconds, parallel=int(parallel))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
