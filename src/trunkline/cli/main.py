"""The `trunkline` command: all that it can do. A module is loaded when one of its commands is called."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

from trunkline.cli.options import COMPLETING
from trunkline.cli.parsing import ClientGroup
from trunkline.config import environment
from trunkline.errors import Misuse, TrunklineError

# The headings of the help, and what stands below each. Here, so that the help loads none of the modules.
_HELP = {
    "Call an agent": {
        "send": "Send a message to start or continue a task, and wait for the outcome.",
        "stream": "Send a message and stream the result: `send --stream`.",
        "chat": "Chat with an agent; /new starts a new conversation, /quit ends.",
        "get": "Show the current state of a task, or wait for its end.",
        "list": "List tasks, a page at a time.",
        "cancel": "Cancel a task.",
        "watch": "Follow a task until it ends: `task watch`.",
        "tools": "Print the skills of agents as tools for a model, or call one.",
        "card": "Fetch the card of an agent: `card AGENT`.",
        "push": "Manage the webhooks of a task: create, get, list, delete.",
        "task": "Manage the tasks of an agent or a hub: get, watch, list, cancel, download.",
        "mcp": "Serve the skills of agents to MCP clients over stdio.",
    },
    "Serve agents": {
        "new": "Create a project: an agent, its test and a container.",
        "serve": "Serve agents over HTTP until interrupted.",
        "fleet": "Show the tasks, success rate, durations and cost of each agent.",
        "dispatch": "Send a message to one or more agents of a hub, by name or by skill.",
        "store": "Maintain a store: check, repair, migrate, rebuild, prune, export, import.",
        "keys": "Manage the keys of callers: create, list, revoke, rotate.",
        "deliveries": "Inspect webhook deliveries: list, show, replay.",
        "inbox": "Answer the questions of tasks: list, show, answer.",
        "hub": "Serve the agents of a workspace: `hub DIR`; `hub init DIR` creates one.",
        "agent": "Manage the agents of a hub: list, show, add, remove, refresh, enable, disable, drain.",
        "ceremony": "Manage the schedules of a hub: list, show, create, update, pause, delete, run, history.",
        "flow": "Manage workflows: definitions (validate, sign, graph), runs and servers (serve, mcp).",
        "route": "Explain which agent of a hub is chosen, and why: explain.",
        "a2a": "List and call the remote agents of a hub: list, card, call.",
        "tenant": "Manage tenants of a hub: create, list, disable, limit, set, alert, rotate, delete, audit.",
    },
    "Try one out": {
        "demo": "Start the demo agent and show what it can do, alone and in a fleet.",
        "doctor": "Examine an agent; exit code 1 if a finding breaks callers.",
        "conformance": "Run the official test kit against an agent; exit code 1 if it fails.",
        "mock": "Serve scripted agents: `mock FILE`.",
    },
    "The tool itself": {
        "completion": "Print the shell completion script.",
        "help": "Show the usage of a command.",
        "auth": "Manage stored credentials: login, logout.",
        "config": "Show the effective options or server settings, with their sources.",
    },
}
# The modules of those that have none of their own name; `module:name` is a command under another name.
_MODULES = {
    "stream": "send",
    **dict.fromkeys(("get", "list", "cancel", "watch"), "task"),
    **dict.fromkeys(("dispatch", "route", "a2a"), "routing"),
    "push": "task:push-config", "new": "project", "flow": "flow flow_runs", "demo": "doctor",
    "completion": "tool", "help": "tool", "config": "tool", "auth": "login",
}  # fmt: skip


class RootGroup(ClientGroup):
    """The group of all commands; of each it knows what the help lists, until it is called."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for panel, commands in _HELP.items():
            for name, text in commands.items():
                self.commands[name] = ClientGroup(name=name, help=text, rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Which command is meant; it is loaded now."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.loaded(name), rest

    def loaded(self, name: str) -> Any:
        """A command or group with all that belongs to it.

        Raises:
            Misuse: it needs a library that is not installed.
        """
        modules, _, own_name = _MODULES.get(name, name).partition(":")
        try:
            found, *more = [
                typer.main.get_group(import_module(f"trunkline.cli.{module}").commands)
                for module in modules.split()
            ]
        except ModuleNotFoundError as error:
            if name != "flow":
                raise
            hint = "pip install 'trunkline[flow]'"
            raise Misuse(f"workflows need {error.name}: {hint}", hint=hint) from None
        for group in more:
            found.commands.update(group.commands)
        command: Any = found.commands.get(own_name or name, found)
        command.name, command.help = name, self.commands[name].help
        return command


app = typer.Typer(
    name="trunkline",
    cls=RootGroup,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A runtime for the Agent2Agent protocol.",
)


def _version(asked: bool) -> None:
    if asked:
        from trunkline import __version__

        print(f"trunkline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", "-v", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A runtime for the Agent2Agent protocol."""
    del version


def main() -> None:
    """Entry point: our own errors are told as those of every command, with what to do."""
    if environment(COMPLETING):
        from trunkline.cli.tool import register_shells

        register_shells()
    # Commands that set up no logging print errors, not log lines.
    logging.getLogger("trunkline").addHandler(logging.NullHandler())
    try:
        app(prog_name="trunkline")
    except TrunklineError as error:
        from trunkline.cli.failure import print_error

        raise SystemExit(print_error(error, sys.argv[1:])) from None
