"""pydantic-ai's fasta2a: its client posts `message/send` to the origin."""

import asyncio
import sys
import uuid

from fasta2a.client import A2AClient


async def main(base: str, text: str) -> None:
    parts = [{"kind": "text", "text": text}]
    message = {"role": "user", "kind": "message", "message_id": str(uuid.uuid4()), "parts": parts}
    answer = await A2AClient(base).send_message(message)
    print(answer["result"]["artifacts"][0]["parts"][0]["text"])


asyncio.run(main(*sys.argv[1:]))
