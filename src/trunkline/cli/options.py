"""The one table of the client commands' options: flags, environment names, files and `config show` read it.

An option is set by its flag, by `A2ACLI_` and its name in capitals, or by that name in a `.env` file.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

PREFIX = "A2ACLI_"
# Set by a shell that wants to know how a line goes on.
COMPLETING = "_TRUNKLINE_COMPLETE"
Kind = Literal["text", "flag", "list", "seconds", "count", "secret", "object", "choice"]


class Option(Struct, frozen=True, kw_only=True):
    """One option. `lasting` says whether the environment and files may set it."""

    name: str
    help: str
    kind: Kind = "text"
    short: str = ""
    aliases: tuple[str, ...] = ()
    metavar: str = ""
    # As a person would type it; empty is "not given".
    default: str = ""
    choices: tuple[str, ...] = ()
    lasting: bool = True

    @property
    def field(self) -> str:
        """Its name as an attribute."""
        plain = self.name.replace("-", "_")
        return f"{plain}_" if plain == "async" else plain

    @property
    def variable(self) -> str:
        """Its name in the environment; empty where only a flag sets it."""
        return PREFIX + self.name.replace("-", "_").upper() if self.lasting else ""


_TABLE = (
    Option(
        name="agent-card", short="-a", metavar="REF",
        help="The agent: a host, a URL, a card's URL or a card's file.",
    ),
    Option(
        name="output", short="-o", kind="choice", choices=("text", "json"), default="text",
        help="The format.",
    ),
    Option(name="json", kind="flag", lasting=False, help="The same as -o json."),
    Option(
        name="stream", kind="flag", lasting=False,
        help="Follow live; with -o json one object per line.",
    ),
    Option(name="verbose", kind="flag", help="Show all that was sent and received."),
    Option(
        name="debug", kind="flag",
        help="Show on standard error how it is done, and the wire without secrets.",
    ),
    Option(
        name="bearer", kind="secret", metavar="TOKEN",
        help="Bearer token. Others on this machine can read a flag: prefer the variable.",
    ),
    Option(
        name="api-key", kind="secret", metavar="KEY",
        help="API key. Others on this machine can read a flag: prefer the variable.",
    ),
    Option(
        name="svc-param", kind="list", metavar="NAME:VALUE",
        help="A service parameter, sent as a header; repeatable.",
    ),
    Option(
        name="transport", kind="list", metavar="BINDING",
        help="JSONRPC, HTTP+JSON or DELEGATE; repeatable, best first; the card's order unless told.",
    ),
    Option(
        name="a2a-version", metavar="VERSION", default="1.0",
        help="The protocol version to speak; below 1.0 only when it is told.",
    ),
    Option(name="insecure", kind="flag", help="Do not check TLS certificates; for development only."),
    Option(name="timeout", kind="seconds", metavar="DURATION", default="5m", help="How long to wait in all."),
    Option(
        name="config", metavar="FILE", lasting=False,
        help="A .env file to read in place of the one found here or above.",
    ),
    Option(
        name="poll-interval", kind="seconds", metavar="DURATION", default="2s",
        help="How often to ask while waiting where the agent does not stream.",
    ),
    Option(
        name="wait", kind="flag", aliases=("watch",),
        help="Wait until the task ends or asks for something; `send` does, unless --async is told.",
    ),
    Option(
        name="async", kind="flag", aliases=("return-immediately", "no-wait"),
        help="Do not wait: print the ids at once.",
    ),
    Option(
        name="fail", kind="flag", lasting=False,
        help="Exit code 1 if the task ends in any way but completed.",
    ),
    Option(name="context-id", metavar="ID", help="The context to go on in, or to list."),
    Option(name="task-id", metavar="ID", help="The task to go on with."),
    Option(name="metadata", kind="object", metavar="JSON", help="Metadata of the request, a JSON object."),
    Option(name="skill", metavar="ID", help="The skill to ask for."),
    Option(name="text", kind="list", lasting=False, metavar="TEXT", help="A part of text; repeatable."),
    Option(
        name="file", kind="list", lasting=False, metavar="PATH|URL",
        help="A part that is a file, sent along, or the address of one; repeatable.",
    ),
    Option(
        name="data", kind="list", lasting=False, metavar="JSON|PATH|-",
        help="A part of data: JSON itself, from a file, or from standard input; repeatable.",
    ),
    Option(
        name="media-type", kind="list", lasting=False, metavar="TYPE",
        help="The media type of the part before it.",
    ),
    Option(name="history", kind="count", metavar="N", help="How many messages of its history to bring."),
    Option(name="status", metavar="STATE", lasting=False, help="Only tasks in this state."),
    Option(name="page-size", kind="count", metavar="N", default="50", help="How many tasks at most."),
    Option(name="page-token", metavar="TOKEN", lasting=False, help="Go on where a page ended."),
    Option(name="artifacts", kind="flag", help="Bring the artifacts too."),
    Option(name="validate", kind="flag", lasting=False, help="Check the card; exit code 1 if it is wrong."),
    Option(name="extended", kind="flag", lasting=False, help="The card for callers who are known."),
    Option(name="dir", metavar="DIR", default=".", help="Where to."),
    Option(name="force", kind="flag", lasting=False, help="Write over files that are there."),
    Option(name="url", metavar="URL", lasting=False, help="Where the webhook is."),
    Option(name="id", metavar="ID", lasting=False, help="The config's id; the agent's choice unless told."),
    Option(name="token", kind="secret", lasting=False, metavar="TEXT", help="What the webhook is shown."),
    Option(name="scheme", metavar="NAME", lasting=False, help="The scheme of its Authorization header."),
    Option(
        name="credentials", kind="secret", metavar="TEXT", lasting=False,
        help="What follows the scheme.",
    ),
    Option(
        name="flow", kind="choice", choices=("device", "client"), lasting=False,
        help="The OAuth flow: by device code or by client credentials; as the card says unless told.",
    ),
    Option(name="client-id", metavar="ID", help="The OAuth client."),
    Option(name="client-secret", kind="secret", metavar="TEXT", help="Its secret; prefer the variable."),
    Option(
        # Only as a flag: a file that was found must not say where a secret goes.
        name="token-url", metavar="URL", lasting=False,
        help="Where the token is asked for; the card's, unless told.",
    ),
    Option(
        name="scope", kind="list", metavar="NAME",
        help="A scope to ask for; repeatable; the card's unless told.",
    ),
    Option(
        name="format", kind="choice", choices=("openai", "responses", "anthropic", "mcp"), default="openai",
        lasting=False, help="Whose shape the tools have.",
    ),
    Option(name="allow", kind="list", lasting=False, metavar="SKILL", help="Only this skill; repeatable."),
    Option(name="deny", kind="list", lasting=False, metavar="SKILL", help="Not this skill; repeatable."),
    Option(name="tag", kind="list", lasting=False, metavar="TAG", help="Only with this tag; repeatable."),
    Option(name="prefix", lasting=False, default="a2a", metavar="TEXT", help="What names begin with."),
    Option(name="agents", lasting=False, metavar="FILE", help="A file that lists agents, in YAML or JSON."),
    Option(name="call", lasting=False, metavar="NAME", help="Call this tool."),
    Option(
        name="arguments", kind="object", lasting=False, metavar="JSON",
        help="What to call it with, a JSON object.",
    ),
    Option(
        name="hand-off", kind="seconds", metavar="DURATION", default="50s", lasting=False,
        help="How long a call waits for its task before it is handed over by an id.",
    ),
    Option(name="kit", metavar="DIR", help="A checkout of a2aproject/a2a-tck."),
)  # fmt: skip
OPTIONS = {option.name: option for option in _TABLE}

SHOWN = ("output", "json", "verbose", "debug", "config")
CALLING = (
    "agent-card", "bearer", "api-key", "svc-param", "transport", "a2a-version", "insecure", "timeout", *SHOWN,
)  # fmt: skip
SENDING = (
    "text", "file", "data", "media-type",
    "context-id", "task-id", "skill", "metadata", *CALLING, "poll-interval",
)  # fmt: skip
