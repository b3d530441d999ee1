"""Trunkline's client at the server of another framework."""

from trial import CANCELED, COUNT, SLEEP, run

from trunkline import Client, TaskState


async def send(base: str) -> str:
    async with Client(base) as client:
        return (await client.send(COUNT)).text


async def stream(base: str) -> str:
    async with Client(base) as client:
        updates = client.stream(COUNT)
        told = "".join([update.text async for update in updates]).strip()
        result = (await updates.finish()).text.strip()
        return told if told == result else f"{told}, but in the result {result}"


async def again(base: str) -> str:
    async with Client(base) as client:
        first = await client.send(COUNT)
        second = await client.send(COUNT, context_id=first.context_id)
        if first.context_id != second.context_id:
            return "another context"
        return second.text


async def cancel(base: str) -> str:
    async with Client(base) as client:
        receipt = await client.send(SLEEP, wait=False)
        state = (await client.cancel(receipt.task_id)).state
        return CANCELED if state is TaskState.CANCELED else str(state)


run(send, stream, again, cancel)
