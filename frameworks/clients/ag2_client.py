"""AG2: a remote agent in the place of a model, asked twice in one conversation."""

import asyncio
import sys

from ag2 import Agent
from ag2.a2a import A2AConfig


async def main(base: str, text: str) -> None:
    reply = await Agent("demo", config=A2AConfig(card_url=base)).ask("echo first")
    reply = await reply.ask(text)
    print(reply.body)


asyncio.run(main(*sys.argv[1:]))
