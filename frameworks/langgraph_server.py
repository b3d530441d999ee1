"""LangGraph's API server in memory, with a graph that asks no model."""

import sys
from typing import Annotated, Any, TypedDict
from uuid import UUID, uuid5

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from trial import pieces

# The server makes the id of a graph from this and the graph's name.
IDS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def count(state: State) -> dict[str, Any]:
    asked = str(state["messages"][-1].content)
    return {"messages": [AIMessage("".join([piece async for piece in pieces(asked)]))]}


builder = StateGraph(State)
builder.add_node("count", count)
builder.add_edge(START, "count")
builder.add_edge("count", END)
graph = builder.compile()

if __name__ == "__main__":
    from langgraph_api.cli import run_server

    run_server(
        "127.0.0.1",
        int(sys.argv[1]),
        graphs={"counter": f"{__file__}:graph"},
        server_level="ERROR",
        # Without it the card is asked for by the id of a graph, which nobody knows beforehand.
        env={"DEFAULT_A2A_ASSISTANT_ID": str(uuid5(IDS, "counter"))},
    )
