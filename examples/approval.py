"""A transfer that waits for a yes, however long that takes and whatever happens to the process.

trunkline serve approval:agent            kill it when you like, and start it again
python approval.py "300 to Ada"           prints the question and the id of the task
python approval.py "yes" TASK             answers it, tomorrow or after a crash
"""

import asyncio
import os
import sys

from trunkline import Agent, Client, Turn

agent = Agent("bank", description="Transfers money if somebody approves", on_crash="resume")


def reserve(order: str) -> str:
    """Put the money aside; a step, so it is done once, even if the function runs again."""
    print(f"reserved: {order}", flush=True)
    return f"R-{len(order)}"


@agent.skill
async def transfer(turn: Turn) -> str:
    """Transfer money after an approval."""
    receipt = await turn.step("reserve", reserve, turn.text)
    answer = await turn.ask(f"Transfer {turn.text}? Reservation {receipt}.")
    if answer.strip().lower() != "yes":
        turn.reject("Not approved.")
    return f"Transferred {turn.text} by reservation {receipt}."


async def main(text: str, task_id: str = "") -> None:
    """Begin a transfer, or answer its question."""
    async with Client(os.environ.get("AGENT_URL", "http://127.0.0.1:8000")) as client:
        result = await client.send(text, task_id=task_id)
    if result.question:
        print(f"{result.question}\npython approval.py yes {result.task_id}")
    else:
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
