"""A model that uses agents as its tools. The agents run in this process; URLs would do as well.

python tool_loop.py
"""

import asyncio
import json

from trunkline import Agent, Turn, tools

weather = Agent("weather", description="Knows the weather of tomorrow", store="memory:")
packing = Agent("packing", description="Knows what to take along", store="memory:")


@weather.skill
def forecast(city: str, days: int = 1) -> str:
    """Say how the weather will be in a city for the next days."""
    return ", ".join([{"Bergen": "rain", "Athens": "sun"}.get(city, "clouds")] * days)


@packing.skill
async def pack(turn: Turn) -> str:
    """Say what to pack for the weather that you describe."""
    bag = await turn.ask("Is the bag small or large?")
    return ", ".join(["umbrella" if "rain" in turn.text else "hat"] + ["book"] * (bag == "large"))


async def rules(messages, offered):
    """Stands in for a model; `offered` is what one would be given as its tools."""
    heard = [one["content"] for one in messages if one["role"] == "tool"]
    if not heard:
        return calling("a2a__weather__forecast", city="Bergen", days=2)
    if len(heard) == 1:
        return calling("a2a__packing__pack", query=heard[0])
    if "task_id=" in heard[-1]:
        return calling(
            "a2a__packing__pack", query="large", task_id=heard[-1].split('task_id="')[1].split('"')[0]
        )
    return {"role": "assistant", "content": f"Take along: {heard[-1]}"}


def calling(name, **arguments):
    """What a model says when it wants a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": name, "type": "function", "function": function}]}


async def loop(model, task: str) -> str:
    """Show the model the conversation until it calls no more tools."""
    async with tools([weather, packing]) as box:
        messages = [{"role": "user", "content": task}]
        for _ in range(10):
            said = await model(messages, box.openai())
            messages.append(said)
            if not said.get("tool_calls"):
                return said["content"]
            for call in said["tool_calls"]:
                wanted = call["function"]
                outcome = await box.call(wanted["name"], wanted["arguments"])
                print(f"{wanted['name']}: {outcome.text}")
                messages.append(outcome.openai(call["id"]))
    return "no answer after ten rounds"


if __name__ == "__main__":
    print(asyncio.run(loop(rules, "What do I pack for two days in Bergen?")))
