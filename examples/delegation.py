"""An agent that calls another one: both here in one process, though the second could be anywhere.

trunkline serve delegation:planner delegation:weather
python delegation.py
"""

import asyncio
import sys

from trunkline import Agent, Client, Turn

weather = Agent("weather", description="Knows the weather of tomorrow")
planner = Agent("planner", description="Plans a day; asks the weather agent first")


@weather.skill
def forecast(city: str, days: int = 1) -> dict[str, object]:
    """Forecast the weather of a city."""
    return {"city": city, "sky": ["rain" if city == "Bergen" else "sun"] * days}


@planner.skill(on_crash="resume")
async def plan(turn: Turn, city: str) -> str:
    """Plan a day in a city."""
    await turn.status("asking for the weather")
    # Its id here, or the address of an agent anywhere. The call is recorded: after a crash it goes on.
    told = await turn.call("weather", data={"city": city})
    return f"{city}: " + ("a museum" if "rain" in told.data["sky"] else "the beach")


async def main(url: str) -> None:
    """Ask the planner about two cities at once."""
    async with Client(url) as client:
        for result in await asyncio.gather(client.send("Bergen"), client.send("Athens")):
            print(result.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8000"]))
