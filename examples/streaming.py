"""An agent that writes while it works and ends with a file, and a client that shows both.

trunkline serve streaming:agent
python streaming.py
"""

import asyncio
import sys

from trunkline import Agent, Client, Turn

agent = Agent("reporter", description="Writes a report and hands it over as a file")


@agent.skill
async def report(turn: Turn, subject: str) -> None:
    """Write a report about a subject."""
    lines = [f"{number}. Something about {subject}.\n" for number in (1, 2, 3)]
    await turn.status("writing")
    for line in lines:
        await turn.write(line)
    await turn.artifact(
        file="".join(lines).encode(), name="report", filename="report.txt", media_type="text/plain"
    )


async def main(url: str) -> None:
    """Show the text as it comes, then what the file is."""
    async with Client(url) as client:
        stream = client.stream("tea")
        async for update in stream:
            if update.kind == "status" and update.text:
                print(f"[{update.text}]")
            elif update.kind == "artifact":
                print(update.text, end="", flush=True)
        result = await stream.finish()
    for file in result.files:
        print(f"{file.name}: {len(file.content or b'')} bytes of {file.media_type}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8000"]))
