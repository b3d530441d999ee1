"""`trunkline tools`: skills as tools, printed or called."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import typer

from trunkline.bridge.registry import load_agents
from trunkline.bridge.sources import Source
from trunkline.bridge.tools import Toolbox
from trunkline.bridge.tools import tools as tools_of
from trunkline.cli.choices import Choices, choose
from trunkline.cli.command import INTERRUPTED
from trunkline.cli.commands.client import Given
from trunkline.cli.failure import CommandFailure, failure_of, tell, wants_json
from trunkline.cli.screen import block, document
from trunkline.cli.session import Session
from trunkline.client.client import Client
from trunkline.errors import Misuse, TrunklineError

# What a file says of each agent.
_IN_FILE = ("bearer", "api_key", "svc_param", "transport", "a2a_version", "insecure", "timeout")


def tools(given: Given) -> None:
    """Print the tools of all agents that are named, or call one.

    Raises:
        typer.Exit: something went wrong, or the tool that was called failed.
    """
    as_json = given.flags["output"] == "json" if "output" in given.flags else wants_json(())
    try:
        choices = choose(given.flags)
        level = logging.DEBUG if choices.flag("debug") else logging.WARNING
        logging.basicConfig(stream=sys.stderr, level=level, format="Warning: %(message)s", force=True)
        if level != logging.DEBUG:
            # What comes of a call, and of the only agent, is told anyhow.
            logging.getLogger().handlers[0].addFilter(lambda record: not _is_told(record, given))
        worked = asyncio.run(_run(given, choices))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except TrunklineError as error:
        failure = failure_of(error, finding=True, credentials=False)
        hint = "trunkline help tools" if failure.code == "A2ACLI_ERR_USAGE" else ""
        tell(CommandFailure(failure.code, failure.message, hint, failure.a2a_code), as_json=as_json)
        raise typer.Exit(failure.exit) from None
    if not worked:
        raise typer.Exit(1)


def _is_told(record: logging.LogRecord, given: Given) -> bool:
    event = str(record.msg).partition(" ")[0]
    return event == "tool.error" or (event == "tools.agent_missing" and len(given.words) == 1)


async def _run(given: Given, choices: Choices) -> bool:
    async with _source(given, choices) as source:
        opening = tools_of(
            source,
            allow=choices.items("allow"),
            deny=choices.items("deny"),
            tags=choices.items("tag"),
            prefix=choices.text("prefix"),
        )
        async with opening as box:
            name = choices.text("call")
            if name:
                return await _call(box, name, choices)
            if "arguments" in given.flags:
                raise Misuse("--arguments are those of a tool: name it with --call")
            document(msgspec.json.encode(_listed(box, choices.text("format"))), compact=False)
            return True


def _listed(box: Toolbox, shape: str) -> list[dict[str, object]]:
    shapes = {
        "openai": box.openai,
        "responses": box.openai_responses,
        "anthropic": box.anthropic,
        "mcp": box.mcp,
    }
    return shapes[shape]()


async def _call(box: Toolbox, name: str, choices: Choices) -> bool:
    outcome = await box.call(name, choices.members("arguments") or {})
    if choices.as_json:
        document(msgspec.json.encode(outcome.mcp()), compact=False)
    else:
        block("Error" if outcome.is_error else "Question" if outcome.question else "Result", outcome.words)
    return not outcome.is_error


@asynccontextmanager
async def _source(given: Given, choices: Choices) -> AsyncGenerator[Source]:
    """The agents that are named, by a file or one by one."""
    file = choices.text("agents")
    if file:
        if given.words:
            raise Misuse("name agents or give --agents FILE, not both")
        idle = [f"--{name.replace('_', '-')}" for name in _IN_FILE if name in given.flags]
        if idle:
            raise Misuse(f"{', '.join(idle)}: with --agents each agent has its own in the file")
        async with load_agents(file) as agents:
            yield agents
        return
    credentials = choices.secret("bearer") or choices.secret("api-key")
    if credentials is not None and len(given.words) > 1:
        raise Misuse("a credential is for one agent; list several with theirs in a file for --agents")
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for words in [(word,) for word in given.words] or [()]:
            session = Session(Given(words, given.flags), choices, alone=True)
            stack.push_async_callback(session.close)
            await session.open()
            clients.append(session.client)
        yield clients[0] if len(clients) == 1 else clients
