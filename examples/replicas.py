"""Two replicas on one PostgreSQL: the first dies in the middle of a task, the second carries it on.

python replicas.py postgresql://user:password@127.0.0.1/database
"""

import asyncio
import os
import socket
import subprocess
import sys

from trunkline import Agent, Client, Turn, Unreachable

agent = Agent("counter", description="Counts slowly", on_crash="resume")


@agent.skill
async def count(turn: Turn) -> str:
    """Count to three; each number is a step that is done once, by whichever replica."""
    one, two = [await turn.step(f"count {number}", os.getpid) for number in (1, 2)]
    await turn.status("two are counted")
    if os.getpid() == two:
        await asyncio.Event().wait()  # Long work, which this process will not survive.
    three = await turn.step("count 3", os.getpid)
    return f"three steps, {len({one, two, three})} processes"


def start(store: str) -> tuple[subprocess.Popen[bytes], str]:
    """A replica on a free port, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    flags = ["serve", "replicas:agent", "--port", str(port), "--store", store, "--set", "log_level=error"]
    command = [sys.executable, "-m", "trunkline.cli", *flags]
    return subprocess.Popen(
        command, cwd=os.path.dirname(os.path.abspath(__file__))
    ), f"http://127.0.0.1:{port}"


async def ready(client: Client) -> None:
    """Wait until a replica answers."""
    while True:
        try:
            await client.card()
            return
        except Unreachable:
            await asyncio.sleep(0.1)


async def main(store: str) -> None:
    """Begin at the first replica, kill it, and get the result from the second."""
    (first, here), (second, there) = start(store), start(store)
    try:
        async with Client(here) as client, Client(there) as other:
            await asyncio.gather(ready(client), ready(other))
            async with client.stream("go") as stream:
                async for update in stream:
                    if update.kind == "status" and "two" in update.text:
                        break
            assert stream.result, "the stream has told of a task"
            first.kill()
            print((await other.wait(stream.result.task_id)).text)
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
