"""`trunkline tools`: skills as tools, printed or called."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from difflib import get_close_matches
from pathlib import Path

from trunkline.bridge.registry import load_agents
from trunkline.bridge.tools import Source, Toolbox
from trunkline.bridge.tools import tools as tools_of
from trunkline.cli.command import run_logged
from trunkline.cli.configuration import ClientConfiguration
from trunkline.cli.console import print_block, print_json
from trunkline.cli.parsing import Commands, Invocation
from trunkline.cli.session import Session
from trunkline.client.client import Client
from trunkline.errors import Misuse, TrunklineError, VersionNotSupported

log = logging.getLogger("trunkline.cli")
commands = Commands()
# How each agent is called; a file of agents says that of each by itself.
OF_AGENTS = ("bearer", "api-key", "svc-param", "transport", "a2a-version", "insecure", "timeout")


@commands.parsed(
    "tools",
    "format", "allow", "deny", "tag", "prefix", "agents", "call", "arguments", "correlation-id", "parent-id",
    *OF_AGENTS, "output", "json", "debug", "config",
    arguments="[AGENT]…", about="Agents. Default: A2ACLI_AGENT_CARD.",
)  # fmt: skip
def tools(invocation: Invocation) -> None:
    """Print the skills of agents as tools for a model, or call one."""

    async def work(config: ClientConfiguration) -> int:
        if not config.flag("debug"):
            # What comes of a call, and of the only agent, is told anyhow.
            logging.getLogger().handlers[0].addFilter(lambda record: not _is_told(record, invocation))
        name = config.text("call")
        if "arguments" in invocation.flags and not name:
            raise Misuse("--arguments requires --call, which names the tool", hint="--call TOOL")
        async with toolbox_of(invocation, config) as box:
            if name:
                return await _call(box, name, config)
            print_json(_listed(box, config.text("format")))
            return 0

    run_logged(invocation, work, "Warning: %(message)s")


def _is_told(record: logging.LogRecord, invocation: Invocation) -> bool:
    event = str(record.msg).partition(" ")[0]
    return event == "tool.error" or (event == "tools.agent_missing" and len(invocation.arguments) == 1)


@asynccontextmanager
async def toolbox_of(invocation: Invocation, config: ClientConfiguration) -> AsyncGenerator[Toolbox]:
    """The tools of the agents that are named, by a file or one by one."""
    async with _agents(invocation, config) as agents:
        opening = tools_of(
            agents,
            allow=config.items("allow"),
            deny=config.items("deny"),
            tags=config.items("tag"),
            prefix=config.text("prefix"),
        )
        async with opening as box:
            yield box


def _listed(box: Toolbox, shape: str) -> list[dict[str, object]]:
    shapes = {
        "openai": box.openai,
        "responses": box.openai_responses,
        "anthropic": box.anthropic,
        "mcp": box.mcp,
    }
    return shapes[shape]()


async def _call(box: Toolbox, name: str, config: ClientConfiguration) -> int:
    names = [tool.name for tool in box]
    if name not in names:
        # A user may type the skill alone; the name of a tool begins with its agent.
        meant = {one: one for one in names} | {one.rpartition("__")[2]: one for one in names}
        near = [meant[one] for one in get_close_matches(name, meant, 1)]
        fix = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names) or 'none'}"
        hint = f"--call {near[0]}" if near else "trunkline tools AGENT"
        raise Misuse(f"there is no tool {name!r}; {fix}", hint=hint)
    outcome = await box.call(
        name,
        config.members("arguments") or {},
        correlation_id=config.text("correlation-id"),
        parent_id=config.text("parent-id"),
    )
    if config.as_json:
        print_json(outcome.mcp())
    else:
        print_block(
            "Error" if outcome.is_error else "Question" if outcome.question else "Result", outcome.words
        )
    return int(outcome.is_error)


@asynccontextmanager
async def _agents(invocation: Invocation, config: ClientConfiguration) -> AsyncGenerator[Source]:
    file = config.text("agents")
    if file:
        if invocation.arguments:
            raise Misuse("name agents or give --agents FILE, not both")
        invocation.refuse(OF_AGENTS, "with --agents each agent has its own in the file")
        _check_file(file)
        async with load_agents(file) as agents:
            yield agents
        return
    credentials = config.secret("bearer") or config.secret("api-key")
    if credentials is not None and len(invocation.arguments) > 1:
        raise Misuse("a credential is for one agent; list several with theirs in a file for --agents")
    async with AsyncExitStack() as stack:
        sessions: list[Session] = []
        for agent in invocation.arguments or (None,):
            session = Session(
                Invocation(() if agent is None else (agent,), invocation.flags), config, agent_only=True
            )
            stack.push_async_callback(session.close)
            await session.open()
            sessions.append(session)
        await asyncio.gather(*map(_choose_version, sessions))
        clients: list[Client] = [session.client for session in sessions]
        yield clients[0] if len(clients) == 1 else clients


def _check_file(file: str) -> None:
    """Raise Misuse if the file of --agents does not exist; without it no agent would be called."""
    if not Path(file).is_file():
        hint = f"ls -l {shlex.quote(str(Path(file).parent))}"
        raise Misuse(f"--agents {file}: no such file", hint=hint)


async def _choose_version(session: Session) -> None:
    """Have an agent called in a version that it offers.

    Raises:
        VersionNotSupported: the agent does not offer the version that the caller insists on.
    """
    try:
        await session.compatible_card()
    except VersionNotSupported:
        raise
    except TrunklineError as error:
        # An agent without a card is reported with its tools, where the others are used all the same.
        log.debug("tools.version_unknown agent=%s error=%a", session.target.url, str(error))
