"""A program that hears by webhook what became of a task, instead of waiting for it.

trunkline serve webhook_receiver:agent --dev       --dev lets webhooks go to this machine itself
python webhook_receiver.py
"""

import asyncio
import secrets
import socket
import sys

import uvicorn

from trunkline import Agent, Client
from trunkline.webhook import Notification, Receiver

agent = Agent("counter", description="Counts words")


@agent.skill
def count(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words"


async def main(url: str) -> None:
    """Listen on a free port, start a task that names it, and wait until the webhook has come."""
    token, done = secrets.token_urlsafe(), asyncio.get_running_loop().create_future()
    receiver = Receiver(tokens=[token])

    async def listen(notification: Notification) -> None:
        if notification.final and not notification.repeated:
            done.set_result(f"{notification.state.name}: {notification.text}")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(receiver.asgi(listen), log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        hook = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        async with Client(url) as client:
            await client.send("to be or not to be", wait=False, push={"url": hook, "token": token})
        print(await done)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8000"]))
