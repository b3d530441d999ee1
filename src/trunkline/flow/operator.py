"""What an operator has set up for workflows, by the names of the environment that other engines know.

What is not set up fails with its code and says how it is set up: a run that is told of work which nobody did
would be worse than one that fails. With the profile `demo` it is done by stubs and mocks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.principal import DEFAULT_TENANT, FLOW_SCOPES, scopes_of
from trunkline.auth.references import KeyReference, Secrets
from trunkline.config import Secret
from trunkline.errors import Misuse
from trunkline.flow.activities.base import Activity, ActivityExecutor, DelegateExecutor, Outcome
from trunkline.flow.activities.composite import CompositeActivities, StubActivities
from trunkline.flow.activities.models import DEFAULT_KEY, DEFAULT_URL, ModelEndpoint, ModelExecutor
from trunkline.flow.activities.steps import StepExecutor, StepRegistry
from trunkline.flow.activities.tools import ToolExecutor
from trunkline.flow.definition.signing import SignaturePolicy, signature_policy
from trunkline.flow.delegates.configured import NamedDelegate, load_delegates, read_delegates
from trunkline.flow.delegates.mock import MockDelegate, ProtocolDelegates, UnknownAgents
from trunkline.flow.delegates.tasks import HttpTasks, TasksConfig, TasksDelegate
from trunkline.flow.delegates.tools import ToolDelegates
from trunkline.flow.scopes import TokenPrincipal
from trunkline.mcp.manifest import McpManifest, load_manifest
from trunkline.mcp.watched import WatchedServers
from trunkline.net.http import HttpClient

log = logging.getLogger("trunkline.flow")
PREFIX = "WORKFLOW_ENGINE_"
# Where libraries of workflows look for the manifest.
MANIFEST = "AGENT_WORKFLOW_MCP_MANIFEST"
_ACTIVITIES = ("step", "llm_call", "tool_call")
_PROTOCOLS = ("a2a", "mcp", "sdk")
# Similarity from which an unknown member of a configuration is a misspelt one.
_MISSPELT = 0.8
# The settings that configure each type of activity and each protocol of delegations.
_SETTINGS = {
    "step": f"{PREFIX}STEP_HANDLERS or the setting flow_steps",
    "llm_call": f"{PREFIX}LLM_CONFIG",
    "tool_call": f"mcp_manifest (default: the file mcp.json) or {PREFIX}MCP_CONFIG",
    "a2a": f"{PREFIX}A2A_CONFIG or the setting flow_delegates",
    "mcp": f"delegateAgents in the manifest of {PREFIX}MCP_CONFIG or the setting flow_delegates",
    "sdk": "flow_delegates",
}


class OperatorConfig(Struct, frozen=True):
    """The configuration of an operator for workflows; None where nothing is set up."""

    manifest: McpManifest | None = None
    # The file of the manifest, which may not exist yet.
    manifest_file: str = ""
    models: ModelEndpoint | None = None
    tasks: TasksConfig | None = None
    steps: StepRegistry | None = None
    demo: bool = False
    signatures: SignaturePolicy = SignaturePolicy()
    # Objects in Python that execute delegations; they are imported when a server starts.
    delegates: tuple[NamedDelegate, ...] = ()
    # Keys of callers, each with its principal.
    tokens: tuple[tuple[Secret, TokenPrincipal], ...] = ()


def read_operator(
    environment: Mapping[str, str],
    *,
    manifest: str = "",
    optional_manifest: str = "",
    steps: StepRegistry | None = None,
    delegates: Sequence[str] = (),
) -> OperatorConfig:
    """Return the configuration in the environment.

    Args:
        manifest: overrides the manifest of the environment.
        optional_manifest: used without another manifest; the file need not exist.

    Raises:
        Misuse: a value is wrong; the text names the variable or the setting.
    """

    def value(name: str) -> str:
        return environment.get(f"{PREFIX}{name}", "").strip()

    path = manifest or value("MCP_CONFIG") or environment.get(MANIFEST, "").strip()
    is_missing = not path and not Path(optional_manifest).is_file()
    path = path or optional_manifest
    profile = value("PROFILE")
    if profile not in ("", "demo"):
        raise Misuse(f"{PREFIX}PROFILE is demo or nothing, not {profile!r}")
    return OperatorConfig(
        None if is_missing else _manifest(path),
        path,
        _models(_object("LLM_CONFIG", value("LLM_CONFIG")), environment),
        _tasks(_object("A2A_CONFIG", value("A2A_CONFIG"))),
        _steps(_object("STEP_HANDLERS", value("STEP_HANDLERS")), steps),
        profile == "demo",
        _signatures(value("DEFINITION_SIGNING_MODE"), value("SIGNING_PUBLIC_KEYS")),
        read_delegates(delegates),
        _tokens(value("AUTH_TOKENS")),
    )


class FlowExecutors:
    """The executors of activities and delegations for the runs of one process."""

    def __init__(
        self,
        config: OperatorConfig,
        http_client: HttpClient,
        secrets: Secrets | None = None,
        *,
        catalogue: bool = False,
    ) -> None:
        """Assemble the executors of a configuration.

        Args:
            http_client: used for models and task APIs; the caller closes it.
            catalogue: whether agents are those of a hub, so that others do not exist.

        Raises:
            Misuse: an object of `flow_delegates` cannot be imported or cannot execute delegations.
        """
        secrets = secrets or Secrets(folder=Path())
        self._servers = WatchedServers(config.manifest_file) if config.manifest_file else None
        activities: dict[str, ActivityExecutor] = {}
        delegates: dict[str, DelegateExecutor] = {}
        if config.steps is not None:
            activities["step"] = StepExecutor(config.steps)
        if config.models is not None:
            activities["llm_call"] = ModelExecutor(config.models, http_client, secrets)
        if config.manifest is not None and self._servers is not None:
            activities["tool_call"] = ToolExecutor(self._servers)
            if config.manifest.delegates:
                delegates["mcp"] = ToolDelegates(config.manifest.delegates, self._servers)
        own = load_delegates(config.delegates)
        if own.transport is not None:
            delegates["a2a"] = TasksDelegate(config.tasks, own.transport, secrets)
        elif config.tasks is not None:
            delegates["a2a"] = TasksDelegate(config.tasks, HttpTasks(config.tasks.url, http_client), secrets)
        delegates |= own.executors
        stubs = StubActivities() if config.demo else None
        self.activities: ActivityExecutor = CompositeActivities(activities, stubs, _SETTINGS)
        if config.manifest is None and self._servers is not None:
            self.activities = _LateManifest(self._servers, self.activities)
        fallback = MockDelegate() if config.demo else UnknownAgents(_SETTINGS) if catalogue else None
        self.delegates: DelegateExecutor = ProtocolDelegates(delegates, fallback, _SETTINGS)
        self._is_demo = config.demo
        missing = "stub(demo)" if config.demo else "missing"
        known = {**activities, **delegates}
        self.routing = {
            name: "production" if name in known else missing for name in (*_ACTIVITIES, *_PROTOCOLS)
        }

    def tell(self) -> None:
        """Log the kinds of work that this server can execute; `flow validate` reports what is missing."""
        available = [name for name, how in self.routing.items() if how != "missing"]
        if available:
            log.info("flow.routing available=%s demo=%s", ",".join(available), self._is_demo)

    async def close(self) -> None:
        """End the sessions with MCP servers."""
        if self._servers is not None:
            await self._servers.close()


class _LateManifest:
    """Executes tool calls once the manifest exists, which it did not when the server started."""

    def __init__(self, servers: WatchedServers, others: ActivityExecutor) -> None:
        self._servers = servers
        self._tools = ToolExecutor(servers)
        self._others = others

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        is_ready = activity.node.type == "tool_call" and self._servers.has_manifest()
        return await (self._tools if is_ready else self._others).execute(activity)


def setting_of(kind: str) -> str:
    """Return the settings by which an operator configures a type of activity or a protocol of delegations."""
    return _SETTINGS[kind]


def _manifest(path: str) -> McpManifest:
    try:
        return load_manifest(path)
    except FileNotFoundError:
        raise Misuse(f"{path}: there is no such manifest of MCP servers") from None


def _json(name: str, text: str, opening: str) -> object:
    """A value that is JSON, or the path of a file that holds it."""
    if not text.startswith(opening):
        try:
            text = Path(text.removeprefix("file:")).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise Misuse(f"{PREFIX}{name} is JSON or the path of a file: {error}") from None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        raise Misuse(f"{PREFIX}{name} is not JSON") from None


def _object(name: str, text: str) -> dict[str, Any] | None:
    if not text:
        return None
    found = _json(name, text, "{")
    if not isinstance(found, dict):
        raise Misuse(f"{PREFIX}{name} is an object")
    return cast("dict[str, Any]", found)


class _TokenForm(Struct, frozen=True, forbid_unknown_fields=True):
    token: Annotated[str, Meta(min_length=1)]
    scopes: Annotated[tuple[str, ...], Meta(min_length=1)]


def _tokens(text: str) -> tuple[tuple[Secret, TokenPrincipal], ...]:
    """Read the tokens of callers. A token that is listed twice has the scopes of both entries."""
    if not text:
        return ()
    name = f"{PREFIX}AUTH_TOKENS"
    try:
        found = msgspec.convert(_json("AUTH_TOKENS", text, "["), tuple[_TokenForm, ...])
    except msgspec.ValidationError as error:
        # Not with what was written: that holds secrets.
        place = str(error).partition(" - at ")[2]
        raise Misuse(f"{name} is a list of objects with token and scopes; look at {place or 'it'}") from None
    known = sorted([scope.value for scope in FLOW_SCOPES])
    scopes: dict[str, frozenset[str]] = {}
    for one in found:
        odd = [scope for scope in one.scopes if scope not in known]
        if odd:
            raise Misuse(f"{name}: there is no scope {odd[0]!r}; use {', '.join(known)}")
        scopes[one.token] = scopes.get(one.token, frozenset()).union(one.scopes)
    return tuple(
        [
            (Secret(token), TokenPrincipal(DEFAULT_TENANT, f"token-{number}", scopes_of(granted)))
            for number, (token, granted) in enumerate(scopes.items(), 1)
        ]
    )


def _signatures(mode: str, keys: str) -> SignaturePolicy:
    try:
        return signature_policy(mode, keys)
    except Misuse as error:
        where = "SIGNING_PUBLIC_KEYS" if mode in ("", "optional", "require") else "DEFINITION_SIGNING_MODE"
        raise Misuse(f"{PREFIX}{where}: {error}") from None


class _Values:
    """The members of a configuration, each of its type."""

    def __init__(self, name: str, found: dict[str, Any], *members: str) -> None:
        self._name = f"{PREFIX}{name}"
        self._found = found
        # Other engines have members of their own, so only misspelt ones are refused.
        known = ("baseUrl", "apiKeyEnv", "apiKeySecretRef", *members)
        for one in [*found.keys() - {*known}]:
            if near := get_close_matches(one, known, 1, _MISSPELT):
                raise Misuse(f"{self._name}: unknown member {one!r}; did you mean {near[0]!r}?")

    def text(self, *names: str) -> str:
        for name in names:
            value = self._found.get(name)
            if value is not None and not isinstance(value, str):
                raise Misuse(f"{self._name}: {name} is a text")
            if value and value.strip():
                return value.strip()
        return ""

    def number(self, name: str, default: float) -> float:
        value = self._found.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Misuse(f"{self._name}: {name} is a number")
        return float(value)

    def key(self, default: KeyReference) -> KeyReference:
        found = KeyReference(self.text("apiKeyEnv"), self.text("apiKeySecretRef"))
        if found.env and found.ref:
            raise Misuse(f"{self._name}: give apiKeyEnv or apiKeySecretRef, not both")
        return found if found.env or found.ref else default


def _models(found: dict[str, Any] | None, environment: Mapping[str, str]) -> ModelEndpoint | None:
    if found is None:
        return None
    values = _Values("LLM_CONFIG", found, "model", "defaultModel", "timeoutMs")
    own = ModelEndpoint()
    return ModelEndpoint(
        values.text("baseUrl") or environment.get("OPENAI_BASE_URL", "").strip() or DEFAULT_URL,
        values.key(DEFAULT_KEY),
        values.text("model", "defaultModel"),
        values.number("timeoutMs", own.timeout_s * 1000) / 1000,
    )


def _tasks(found: dict[str, Any] | None) -> TasksConfig | None:
    if found is None:
        return None
    values, own = _Values("A2A_CONFIG", found, "pollIntervalMs", "pollTimeoutMs"), TasksConfig()
    url = values.text("baseUrl")
    if not url:
        raise Misuse(f"{PREFIX}A2A_CONFIG: baseUrl is missing")
    return TasksConfig(
        url,
        values.key(KeyReference()),
        values.number("pollIntervalMs", own.poll_ms),
        values.number("pollTimeoutMs", own.timeout_ms),
    )


def _steps(found: dict[str, Any] | None, registry: StepRegistry | None) -> StepRegistry | None:
    if found is None:
        return registry
    made = StepRegistry() if registry is None else registry
    for name, output in found.items():
        if not isinstance(output, dict):
            raise Misuse(f"{PREFIX}STEP_HANDLERS: the output of {name!r} is an object")
        made.fixed(name, cast("dict[str, Any]", output))
    return made
