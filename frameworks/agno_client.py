"""Agno: its A2A client, which speaks JSON-RPC of 0.3. It cannot answer a question: it names no task."""

from agno.client.a2a import A2AClient
from trial import COUNT, run


async def send(base: str) -> str:
    return (await A2AClient(f"{base}/a2a", protocol="json-rpc").send_message(COUNT)).content


async def stream(base: str) -> str:
    client = A2AClient(f"{base}/a2a", protocol="json-rpc")
    return "".join([event.content or "" async for event in client.stream_message(COUNT)])


run(send, stream)
