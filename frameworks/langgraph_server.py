"""LangGraph's API server in memory, with a graph that asks no model."""

import sys
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from trial import pieces


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

    run_server("127.0.0.1", int(sys.argv[1]), graphs={"counter": f"{__file__}:graph"}, server_level="ERROR")
