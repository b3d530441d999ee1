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


class Option(Struct, frozen=True):
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
        "agent-card", "The agent: a host, a URL, a card's URL or a card's file.", short="-a", metavar="REF"
    ),
    Option("output", "The format.", kind="choice", short="-o", default="text", choices=("text", "json")),
    Option("json", "The same as -o json.", kind="flag", lasting=False),
    Option("server", "Show the settings of a server in this folder.", kind="flag", lasting=False),
    Option("stream", "Follow live; with -o json one object per line.", kind="flag", lasting=False),
    Option("verbose", "Show all that was sent and received.", kind="flag"),
    Option("debug", "Show on standard error how it is done, and the wire without secrets.", kind="flag"),
    Option(
        "bearer", "Bearer token. Others on this machine can read a flag: prefer the variable.",
        kind="secret", metavar="TOKEN",
    ),
    Option(
        "api-key", "API key. Others on this machine can read a flag: prefer the variable.",
        kind="secret", metavar="KEY",
    ),
    Option(
        "svc-param", "A service parameter, sent as a header; repeatable.", kind="list", metavar="NAME:VALUE"
    ),
    Option(
        "transport", "JSONRPC, HTTP+JSON or DELEGATE; repeatable, best first; the card's order unless told.",
        kind="list", metavar="BINDING",
    ),
    Option(
        "a2a-version", "The protocol version to insist on. Default: 1.0, or the agent's own.",
        metavar="VERSION", default="1.0",
    ),
    Option("insecure", "Do not check TLS certificates; for development only.", kind="flag"),
    Option("timeout", "How long to wait in all.", kind="seconds", metavar="DURATION", default="5m"),
    Option(
        "config", "A .env file to read in place of the one found here or above.",
        metavar="FILE", lasting=False,
    ),
    Option(
        "poll-interval", "How often to ask while waiting where the agent does not stream.",
        kind="seconds", metavar="DURATION", default="2s",
    ),
    Option(
        "wait", "Wait until the task ends or asks for something; `send` does, unless --async is told.",
        kind="flag", aliases=("watch",),
    ),
    Option(
        "async", "Do not wait: print the ids at once.",
        kind="flag", aliases=("return-immediately", "no-wait"),
    ),
    Option("fail", "Exit code 1 if the task ends in any way but completed.", kind="flag", lasting=False),
    Option("context-id", "The context to go on in, or to list.", metavar="ID"),
    Option("task-id", "The task to go on with.", metavar="ID"),
    Option("metadata", "Metadata of the request, a JSON object.", kind="object", metavar="JSON"),
    Option("skill", "The skill to ask for.", metavar="ID"),
    Option("correlation-id", "The trace that the work belongs to.", metavar="ID"),
    Option("parent-id", "The task or span that requests the work.", metavar="ID"),
    Option("text", "A part of text; repeatable.", kind="list", metavar="TEXT", lasting=False),
    Option(
        "file", "A part that is a file, sent along, or the address of one; repeatable.",
        kind="list", metavar="PATH|URL", lasting=False,
    ),
    Option(
        "data", "A part of data: JSON itself, from a file, or from standard input; repeatable.",
        kind="list", metavar="JSON|PATH|-", lasting=False,
    ),
    Option("media-type", "The media type of the part before it.", kind="list", metavar="TYPE", lasting=False),
    Option("history", "How many messages of its history to bring.", kind="count", metavar="N"),
    Option("status", "Only tasks in this state.", metavar="STATE", lasting=False),
    Option(
        "hub", "The hub: its folder, the URL of its store, or its address.",
        metavar="DIR|URL", lasting=False,
    ),
    Option("tenant", "Tenant of the hub. Default: the tenant of the caller.", metavar="NAME", lasting=False),
    Option("agent", "Only tasks of this agent of the hub.", metavar="NAME", lasting=False),
    Option("page-size", "How many tasks at most.", kind="count", metavar="N", default="50"),
    Option("page-token", "Go on where a page ended.", metavar="TOKEN", lasting=False),
    Option("artifacts", "Bring the artifacts too.", kind="flag"),
    Option("validate", "Check the card; exit code 1 if it is wrong.", kind="flag", lasting=False),
    Option("extended", "The card for callers who are known.", kind="flag", lasting=False),
    Option("dir", "Where to.", metavar="DIR", default="."),
    Option("force", "Write over files that are there.", kind="flag", lasting=False),
    Option("url", "Where the webhook is.", metavar="URL", lasting=False),
    Option("id", "The config's id; the agent's choice unless told.", metavar="ID", lasting=False),
    Option("token", "What the webhook is shown.", kind="secret", metavar="TEXT", lasting=False),
    Option("scheme", "The scheme of its Authorization header.", metavar="NAME", lasting=False),
    Option("credentials", "What follows the scheme.", kind="secret", metavar="TEXT", lasting=False),
    Option(
        "flow", "The OAuth flow: by device code or by client credentials; as the card says unless told.",
        kind="choice", choices=("device", "client"), lasting=False,
    ),
    Option("client-id", "The OAuth client.", metavar="ID"),
    Option("client-secret", "Its secret; prefer the variable.", kind="secret", metavar="TEXT"),
    # Only as a flag: a file that was found must not say where a secret goes.
    Option(
        "token-url", "Where the token is asked for; the card's, unless told.", metavar="URL", lasting=False
    ),
    Option("scope", "A scope to ask for; repeatable; the card's unless told.", kind="list", metavar="NAME"),
    Option(
        "format", "Whose shape the tools have.",
        kind="choice", default="openai", choices=("openai", "responses", "anthropic", "mcp"), lasting=False,
    ),
    Option("allow", "Only this skill; repeatable.", kind="list", metavar="SKILL", lasting=False),
    Option("deny", "Not this skill; repeatable.", kind="list", metavar="SKILL", lasting=False),
    Option("tag", "Only with this tag; repeatable.", kind="list", metavar="TAG", lasting=False),
    Option("prefix", "What names begin with.", metavar="TEXT", default="a2a", lasting=False),
    Option("agents", "A file that lists agents, in YAML or JSON.", metavar="FILE", lasting=False),
    Option("call", "Call this tool.", metavar="NAME", lasting=False),
    Option("arguments", "What to call it with, a JSON object.", kind="object", metavar="JSON", lasting=False),
    Option(
        "hand-off", "How long a call waits for its task before it is handed over by an id.",
        kind="seconds", metavar="DURATION", default="50s", lasting=False,
    ),
    Option("kit", "A checkout of a2aproject/a2a-tck.", metavar="DIR"),
)  # fmt: skip
OPTIONS = {option.name: option for option in _TABLE}

SHOWN = ("output", "json", "verbose", "debug", "config")
CALLING = (
    "agent-card", "bearer", "api-key", "svc-param", "transport", "a2a-version", "insecure", "timeout", *SHOWN,
)  # fmt: skip
ON_HUB = ("hub", "tenant")
SENDING = (
    "text", "file", "data", "media-type",
    "context-id", "task-id", "skill", "correlation-id", "parent-id", "metadata", *CALLING, "poll-interval",
)  # fmt: skip
