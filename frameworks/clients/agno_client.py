"""Agno: its A2A client, which speaks JSON-RPC of 0.3; a send."""

import asyncio
import sys

from agno.client.a2a import A2AClient


async def main(base: str, text: str) -> None:
    result = await A2AClient(f"{base}/a2a", protocol="json-rpc").send_message(text)
    print(result.content)


asyncio.run(main(*sys.argv[1:]))
