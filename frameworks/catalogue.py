"""The frameworks that are tried: what is installed for each, what it has and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

CARD = "/.well-known/agent-card.json"


@dataclass(frozen=True)
class Framework:
    """A framework with the scripts `NAME_client.py` and `NAME_server.py`, as far as it has them."""

    name: str
    title: str
    distribution: str
    packages: tuple[str, ...]
    client: bool = True
    server: bool = True
    # Where its agent is below the origin, and what answers as soon as it is there.
    at: str = ""
    ready: str = CARD
    client_note: str = ""
    server_note: str = ""


FRAMEWORKS = (
    Framework(
        "adk",
        "Google ADK",
        "google-adk",
        ("google-adk[a2a]", "uvicorn"),
        client_note="It keeps the text of the frame that closes an artifact, so it needs `whole`.",
    ),
    Framework("strands", "Strands", "strands-agents", ("strands-agents[a2a]", "uvicorn")),
    Framework(
        "ag2",
        "AG2",
        "ag2",
        ("ag2[a2a,openai]", "a2a-sdk[http-server]", "uvicorn"),
        client_note="Streaming, it concatenates whatever comes, so it needs `last`. Polling, it keeps an "
        "artifact as it first saw it, while it still grows.",
    ),
    Framework(
        "agent_framework",
        "Microsoft agent-framework",
        "agent-framework-a2a",
        # Named with its version, so that only this package may be one before its release: httpx must not.
        ("agent-framework-core", "agent-framework-a2a>=1.0.0b1", "a2a-sdk[http-server]", "uvicorn"),
    ),
    Framework(
        "agno",
        "Agno",
        "agno",
        ("agno[a2a,os]", "openai"),
        at="/a2a/agents/counter",
        ready=f"/a2a/agents/counter{CARD}",
        client_note="Its send reads the agent's messages in the history and no artifact; its stream "
        "concatenates whatever comes, so it needs `last`.",
        server_note="The address on its card takes `message/stream` and no other method.",
    ),
    Framework(
        "fasta2a",
        "pydantic-ai with fasta2a",
        "fasta2a",
        ("fasta2a[pydantic-ai]", "httpx", "uvicorn"),
        client_note="It calls the methods of 0.3 and looks for the answer where 1.0 has it, under `task`.",
        server_note="Its worker does nothing when it is told to cancel.",
    ),
    Framework(
        "beeai",
        "BeeAI",
        "beeai-framework",
        ("beeai-framework[a2a]",),
        server_note="A plain runnable answers with a message of no task: nothing can be cancelled.",
    ),
    Framework(
        "crewai",
        "CrewAI",
        "crewai",
        ("crewai[a2a]",),
        server=False,
        client_note="It joins whatever comes with blanks between, and the question with the answer.",
    ),
    Framework(
        "langgraph",
        "LangGraph API",
        "langgraph-api",
        ("langgraph-api", "langgraph-runtime-inmem"),
        client=False,
        ready="/ok",
        server_note="Its send answers when the task has ended, also where it is asked not to wait.",
    ),
    Framework(
        "a2a_lite",
        "a2a-lite",
        "a2a-lite",
        ("a2a-lite",),
        server_note="Its skill leaves its text in the history alone, where our result does not look for it.",
    ),
)
