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
        "agent-card", "Agent: a host, a URL, or the URL or file of a card.", short="-a", metavar="REF"
    ),
    Option("output", "Output format.", kind="choice", short="-o", default="text", choices=("text", "json")),
    Option("json", "Same as -o json.", kind="flag", lasting=False),
    Option("server", "Show the settings of a server in this folder.", kind="flag", lasting=False),
    Option("stream", "Stream events; with -o json, one object per line.", kind="flag", lasting=False),
    Option("verbose", "Show the complete request and response.", kind="flag"),
    Option("debug", "Write each request and response to standard error, without secrets.", kind="flag"),
    Option(
        "bearer", "Bearer token. Prefer the variable: other users can read flags.",
        kind="secret", metavar="TOKEN",
    ),
    Option(
        "api-key", "API key. Prefer the variable: other users can read flags.",
        kind="secret", metavar="KEY",
    ),
    Option(
        "svc-param", "Service parameter, sent as a header; repeatable.", kind="list", metavar="NAME:VALUE"
    ),
    Option(
        "transport", "JSONRPC, HTTP+JSON or DELEGATE; repeatable, best first. Default: as on the card.",
        kind="list", metavar="BINDING",
    ),
    Option(
        "a2a-version", "Required protocol version. Without it, agents that offer only 0.3 are called in 0.3.",
        metavar="VERSION", default="1.0",
    ),
    Option("insecure", "Do not check TLS certificates; for development only.", kind="flag"),
    Option("timeout", "Total time limit.", kind="seconds", metavar="DURATION", default="5m"),
    Option(
        "config", ".env file to read instead of the nearest one.",
        metavar="FILE", lasting=False,
    ),
    Option(
        "poll-interval", "Polling interval for agents that do not stream.",
        kind="seconds", metavar="DURATION", default="2s",
    ),
    Option(
        "wait", "Wait until the task ends or requires input. `send` waits by default.",
        kind="flag", aliases=("watch",),
    ),
    Option(
        "async", "Return at once and print the IDs.",
        kind="flag", aliases=("return-immediately", "no-wait"),
    ),
    Option("fail", "Exit with code 1 unless the task completes.", kind="flag", lasting=False),
    Option("context-id", "ID of the context to continue or to list.", metavar="ID"),
    Option("task-id", "ID of the task to continue.", metavar="ID"),
    Option("metadata", "Metadata of the request: a JSON object.", kind="object", metavar="JSON"),
    Option("skill", "Skill to request.", metavar="ID"),
    Option("correlation-id", "ID of the trace to which the work belongs.", metavar="ID"),
    Option("parent-id", "ID of the task or span that requests the work.", metavar="ID"),
    Option("text", "Text part of the message; repeatable.", kind="list", metavar="TEXT", lasting=False),
    Option(
        "file", "File part: a path, whose content is sent, or a URL; repeatable.",
        kind="list", metavar="PATH|URL", lasting=False,
    ),
    Option(
        "data", "Data part: JSON, a file, or - for standard input; repeatable.",
        kind="list", metavar="JSON|PATH|-", lasting=False,
    ),
    Option("media-type", "Media type of the preceding part.", kind="list", metavar="TYPE", lasting=False),
    Option("history", "Number of history messages to include.", kind="count", metavar="N"),
    Option("status", "Only tasks in this state.", metavar="STATE", lasting=False),
    Option(
        "hub", "Hub: its folder, the URL of its store, or its address.",
        metavar="DIR|URL", lasting=False,
    ),
    Option("tenant", "Tenant of the hub. Default: the tenant of the caller.", metavar="NAME", lasting=False),
    Option("agent", "Only tasks of this agent of the hub.", metavar="NAME", lasting=False),
    Option("page-size", "Maximum number of tasks.", kind="count", metavar="N", default="50"),
    Option("page-token", "Token of the next page.", metavar="TOKEN", lasting=False),
    Option("artifacts", "Include the artifacts.", kind="flag"),
    Option("validate", "Check the card; exit code 1 if it is wrong.", kind="flag", lasting=False),
    Option("extended", "Fetch the extended card, for authenticated callers.", kind="flag", lasting=False),
    Option("dir", "Target folder.", metavar="DIR", default="."),
    Option("force", "Overwrite existing files.", kind="flag", lasting=False),
    Option("url", "URL of the webhook.", metavar="URL", lasting=False),
    Option("id", "ID of the configuration. Default: chosen by the agent.", metavar="ID", lasting=False),
    Option("token", "Token that the webhook receives.", kind="secret", metavar="TEXT", lasting=False),
    Option("scheme", "Scheme of the Authorization header.", metavar="NAME", lasting=False),
    Option("credentials", "Value after the scheme.", kind="secret", metavar="TEXT", lasting=False),
    Option(
        "flow", "OAuth flow: device code or client credentials. Default: the flow of the card.",
        kind="choice", choices=("device", "client"), lasting=False,
    ),
    Option("client-id", "ID of the OAuth client.", metavar="ID"),
    Option("client-secret", "Secret of the client; prefer the variable.", kind="secret", metavar="TEXT"),
    # Only as a flag: a file that was found must not say where a secret goes.
    Option(
        "token-url", "URL of the token endpoint. Default: that of the card.", metavar="URL", lasting=False
    ),
    Option("scope", "OAuth scope; repeatable. Default: those of the card.", kind="list", metavar="NAME"),
    Option(
        "format", "Format of the tools.",
        kind="choice", default="openai", choices=("openai", "responses", "anthropic", "mcp"), lasting=False,
    ),
    Option("allow", "Include only this skill; repeatable.", kind="list", metavar="SKILL", lasting=False),
    Option("deny", "Exclude this skill; repeatable.", kind="list", metavar="SKILL", lasting=False),
    Option("tag", "Include skills with this tag; repeatable.", kind="list", metavar="TAG", lasting=False),
    Option("prefix", "Prefix of the tool names.", metavar="TEXT", default="a2a", lasting=False),
    Option("agents", "File that lists agents, in YAML or JSON.", metavar="FILE", lasting=False),
    Option("call", "Tool to call.", metavar="NAME", lasting=False),
    Option("arguments", "Arguments of the call: JSON object.", kind="object", metavar="JSON", lasting=False),
    Option(
        "hand-off", "Time after which a call returns the ID of its task instead of the result.",
        kind="seconds", metavar="DURATION", default="50s", lasting=False,
    ),
    Option("kit", "Checkout of a2aproject/a2a-tck.", metavar="DIR"),
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
