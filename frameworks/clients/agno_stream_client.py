"""Agno: the same client, a stream; it concatenates whatever comes."""

import asyncio
import sys

from agno.client.a2a import A2AClient


async def main(base: str, text: str) -> None:
    answer = ""
    async for event in A2AClient(f"{base}/a2a", protocol="json-rpc").stream_message(text):
        answer += event.content or ""
    print(answer)


asyncio.run(main(*sys.argv[1:]))
