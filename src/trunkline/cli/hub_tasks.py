"""`trunkline task get`, `watch`, `list` and `cancel` for the tasks of a hub: by ID alone, of every agent."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from trunkline.cli.admin import AGENTS, TASKS_API, Operator, call_api, settings_for
from trunkline.cli.admin_endpoint import read_admin_endpoint
from trunkline.cli.configuration import FLAG, ClientConfiguration
from trunkline.cli.console import print_block, print_data, print_field, print_given, print_json, print_notice
from trunkline.cli.next_command import JSON_REPLY, REPLY, command_line, print_next
from trunkline.cli.parsing import Invocation
from trunkline.cli.session import credentials_from
from trunkline.errors import Misuse, RouteNotFound, TaskNotCancelable, TimedOut
from trunkline.hub.workspace import HUB
from trunkline.log.ids import is_task_id
from trunkline.peer.absence import AWAY_KEY

AT_WORK = ("submitted", "working")
CANCELED = "canceled"
EVERY_S = 0.5
# Agents that are compared with a misspelt name: one page of the list.
_LISTED = "200"
_ADDRESSES = ("http://", "https://")
_ONLY_AGENTS = ("history", "artifacts", "svc-param", "transport", "a2a-version", "insecure")
_WHY = "a hub's own list of tasks has no such option; name the agent with -a to use it"
# What a list was asked for, as the command for its next page repeats it.
_FILTERS = ("status", "agent", "context_id", "page_size")
_SETTLED_WARNINGS = ("failed", "rejected", CANCELED)
_HUB_PATHS = ("", "/a2a")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class HubTasks:
    """The tasks of one hub: of this machine by its folder or store, of another one by its URL.

    Args:
        place: the folder, the store or the URL; empty for the hub of the current folder.
        config: the options of the command, for credentials and the output format.
    """

    def __init__(self, place: str, config: ClientConfiguration, tenant: str = "") -> None:
        self.config = config
        self.tenant = tenant
        typed = has_typed_credentials(config)
        if typed and not place.startswith(_ADDRESSES):
            endpoint = read_admin_endpoint(settings_for(place or None))
            place = place if endpoint is None else endpoint.url
        self.place = place
        is_address = place.startswith(_ADDRESSES)
        if is_address and urlsplit(place).path.rstrip("/") not in _HUB_PATHS:
            parts = urlsplit(place)
            hint = f"--hub {shlex.quote(f'{parts.scheme}://{parts.netloc}')}"
            raise Misuse(f"{place} is not the address of a hub: its path is / or /a2a", hint=hint)
        # Typed credentials name the caller, also on the machine of the hub, where the operator needs none.
        self._is_remote = is_address and (typed or not is_own_hub(place))
        self._operator = Operator(None if is_address else place or None)

    def ask(self, method: str, path: str, **query: str) -> Any:
        """Return the answer of the hub's API to one request."""
        if not self._is_remote:
            if read_admin_endpoint(self._operator.settings) is None:
                raise self._operator.no_server()
            return self._operator.ask(method, path, tenant=self.tenant, **query)
        bearer, api_key = credentials_from(self.config)
        headers = [("Content-Type", "application/json")]
        if api_key is not None:
            headers.append(("X-API-Key", api_key.reveal()))
        elif bearer is not None:
            headers.append(("Authorization", f"Bearer {bearer.reveal()}"))
        parts = urlsplit(self.place)
        base = f"{parts.scheme}://{parts.netloc}"
        given = {name: text for name, text in {"tenant": self.tenant, **query}.items() if text}
        limit_s = self.config.seconds("timeout")
        return msgspec.json.decode(
            asyncio.run(call_api(method, base + path, given, tuple(headers), timeout_s=limit_s))
        )

    def get(self, task_id: str) -> dict[str, Any]:
        """Return a task with the newest of its events."""
        return self.ask("GET", f"{TASKS_API}/{task_id}")

    def command(self, name: str, *arguments: str, options: Mapping[str, str] | None = None) -> str:
        """Return a command for this hub that can be copied."""
        named = {**(options or {}), "--hub": self.place, "--tenant": self.tenant}
        return command_line(name, *arguments, options=named)

    def answer_command(self, task: Mapping[str, Any]) -> str:
        """Return the command that answers the question of a task."""
        if self._is_remote:
            reply, data = reply_words(task)
            target = {"-a": self.place, "--task-id": task["taskId"], **data}
            return command_line("send", *reply, target=target)
        store = "" if self.place.startswith(_ADDRESSES) else self.place
        return inbox_command(task, store, self.tenant)


def has_typed_credentials(config: ClientConfiguration) -> bool:
    """Return whether a token or a key was given by a flag."""
    return any([config.values[name].source == FLAG for name in ("bearer", "api-key")])


def reply_words(task: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the argument or the option with which a command answers the question of a task."""
    question: Mapping[str, Any] = task.get("question", {})
    if "schema" in question:
        return (), {"--data": JSON_REPLY}
    choices = "|".join(question.get("choices", ()))
    return (f"<{choices}>" if choices else REPLY,), {}


def inbox_command(task: Mapping[str, Any], store: str, tenant: str) -> str:
    """Return the command that answers the question of a task on a store."""
    reply, data = reply_words(task)
    options = {**data, "--store": store, "--tenant": tenant}
    return command_line("inbox answer", task["taskId"], *reply, options=options)


def print_task(task: Mapping[str, Any]) -> None:
    """Print a task as fields: its IDs, its state, its question and its whole result."""
    for label, name in (("Task", "taskId"), ("Context", "contextId"), ("State", "state")):
        print_field(label, task[name])
    print_given(Agent=task["agent"], Skill=task.get("skill", ""))
    if task.get("text"):
        print_block("Text", task["text"])
    for value in task.get("data", ()):
        print_data("Data", value)
    for file in task.get("files", ()):
        name, kind = file.get("name", "(no name)"), file.get("mediaType", "(no type)")
        where = file.get("url") or f"{file.get('size', 0)} bytes"
        print_field("File", f"{name}, {kind}, {where}")
    question: Mapping[str, Any] = task.get("question", {})
    print_given(Choices=", ".join(question.get("choices", ())))
    if "schema" in question:
        print_data("Schema", question["schema"])
    print_given(Deadline=question.get("deadline", ""), Error=task.get("error", ""))


def server_here() -> str | None:
    """Return the address of the server of the current folder, or its workspace if it does not run.

    Returns:
        None if the folder is no workspace of a hub and no server has its store open.
    """
    endpoint = read_admin_endpoint(settings_for(None))
    if endpoint is not None:
        return endpoint.url
    return str(Path.cwd()) if Path(HUB).is_file() else None


def is_own_hub(url: str) -> bool:
    """Return whether a URL is the address of the server that has the store of the current folder."""
    endpoint = read_admin_endpoint(settings_for(None))
    if endpoint is None:
        return False
    given, own = urlsplit(url), urlsplit(endpoint.url)
    names = _LOOPBACK if own.hostname in _LOOPBACK else {own.hostname}
    at_hub = given.scheme == "http" and given.path.rstrip("/") in _HUB_PATHS
    return at_hub and given.hostname in names and given.port == own.port


def get_task(hub: HubTasks, invocation: Invocation) -> None:
    """Show a task of a hub; with --wait wait until it ends or asks for something."""
    task_id = _task_id(invocation)
    task = _wait(hub, task_id, lambda _: None) if hub.config.flag("wait") else hub.get(task_id)
    _show(hub, task)


def watch_task(hub: HubTasks, invocation: Invocation) -> None:
    """Show each change of a task of a hub until it ends or asks for something."""
    config, shown = hub.config, list[dict[str, Any]]()

    def show_change(task: dict[str, Any]) -> None:
        plain = {name: task.get(name, "") for name in ("state", "text", "error")}
        before = shown[-1] if shown else {"state": "", "text": ""}
        if before == plain:
            return
        shown.append(plain)
        if config.as_json:
            print_json(_without_events(task), compact=True)
            return
        if before["state"] != plain["state"]:
            print_field("State", task["state"])
        added = plain["text"].removeprefix(before["text"])
        if added and task["state"] in AT_WORK:
            print_block("Text", added)

    task = _wait(hub, _task_id(invocation), show_change)
    if not config.as_json:
        _show(hub, task)


def list_tasks(hub: HubTasks, invocation: Invocation) -> None:
    """List the tasks of a hub, newest status first, a page at a time."""
    if invocation.arguments:
        raise Misuse(f"unexpected argument {invocation.arguments[0]!r}; name the hub with --hub")
    config = hub.config
    query = {
        "state": config.text("status"), "agent": config.text("agent"), "contextId": config.text("context-id"),
        "limit": str(config.count("page-size") or 50), "after": config.text("page-token"),
    }  # fmt: skip
    page = hub.ask("GET", TASKS_API, **query)
    if config.as_json and config.flag("stream"):
        for task in page["items"]:
            print_json(task, compact=True)
    elif config.as_json:
        print_json(page)
    else:
        for task in page["items"]:
            print_field("Task", "  ".join([task["taskId"], task["agent"], task["state"], task["updatedAt"]]))
        print_field("Tasks", str(len(page["items"])))
        if query["agent"] and not page["items"]:
            note_unlisted(hub.ask, agents=[query["agent"]])
        if page["next"]:
            flags = {name: str(invocation.flags.get(name, "")) for name in _FILTERS}
            kept = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
            print_next(hub.command("task list", options={**kept, "--page-token": page["next"]}))


def note_unlisted(ask: Callable[..., Any], *, agents: Sequence[str] = (), skill: str = "") -> None:
    """Report each agent and skill that the hub does not list, with the most similar name."""
    try:
        listed: list[dict[str, Any]] = ask("GET", AGENTS, limit=_LISTED)["items"]
    except (Misuse, RouteNotFound):
        # A server without a catalogue.
        return
    names = [one["name"] for one in listed]
    skills = {each["id"] for one in listed for each in one["skills"]}
    for kind, name, known in (*[("agent", name, names) for name in agents], ("skill", skill, sorted(skills))):
        near = get_close_matches(name, known, 1)
        if near and name not in known:
            print_notice("Warning", f"the hub lists no {kind} {name!r}; did you mean {near[0]!r}?")


def cancel_task(hub: HubTasks, invocation: Invocation) -> None:
    """Cancel a task of a hub."""
    task_id = _task_id(invocation)
    try:
        task = hub.ask("POST", f"{TASKS_API}/{task_id}/cancel")
    except TaskNotCancelable:
        task = hub.get(task_id)
        # Cancelling a task twice is a success.
        if task["state"] != CANCELED:
            raise
    _show(hub, task, wanted=CANCELED)


COMMANDS: Mapping[str, Callable[[HubTasks, Invocation], None]] = {
    "get": get_task, "watch": watch_task, "list": list_tasks, "cancel": cancel_task,
}  # fmt: skip


def run_on_hub(name: str, place: str, invocation: Invocation, config: ClientConfiguration) -> None:
    """Run one of these commands on the hub at a place.

    Raises:
        Misuse: an option is given that a hub's tasks do not have.
    """
    invocation.refuse(_ONLY_AGENTS, _WHY)
    if "agent_card" not in invocation.flags and invocation.arguments[:1] == (place,):
        # The URL of the hub, typed as the first argument.
        invocation = replace(invocation, arguments=invocation.arguments[1:])
    COMMANDS[name](HubTasks(place, config, config.text("tenant")), invocation)


def _task_id(invocation: Invocation) -> str:
    if len(invocation.arguments) != 1:
        raise Misuse("give one task ID", hint="trunkline task list")
    task_id = invocation.arguments[0]
    if not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not a task ID", hint="trunkline task list")
    return task_id


def _wait(hub: HubTasks, task_id: str, note: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Read a task again and again until it ends or asks for something."""
    left, absences = hub.config.seconds("timeout"), AbsenceNotices()
    while True:
        task = hub.get(task_id)
        note(task)
        if task["state"] not in AT_WORK:
            return task
        absences.report(task, hub.ask)
        if left <= 0:
            raise TimedOut(f"task {task_id} is still {task['state']}; it continues", reason="total")
        time.sleep(EVERY_S)
        left -= EVERY_S


class AbsenceNotices:
    """Reports on standard error, once per reason, that a task waits for an agent that is away."""

    def __init__(self) -> None:
        self._reported = set[str]()

    def report(self, task: Mapping[str, Any], ask: Callable[..., Any]) -> None:
        """Report why this task does not proceed, if its agent cannot be reached."""
        if task["state"] not in AT_WORK:
            return
        reason = absence_of(task)
        if not reason and task["taskId"] not in self._reported:
            reason = self._unreachable(task, ask)
        if reason and reason not in self._reported:
            self._reported |= {reason, task["taskId"]}
            print_notice("Waiting", reason)

    def _unreachable(self, task: Mapping[str, Any], ask: Callable[..., Any]) -> str:
        """Return why the catalogue calls the agent of a task unreachable; empty if it does not."""
        try:
            listed = ask("GET", f"{AGENTS}/{quote(task['agent'], safe='')}")
        except (Misuse, RouteNotFound):
            # A server without a catalogue, or the hub itself.
            return ""
        if listed["state"] != "unreachable":
            return ""
        return f"{task['agent']} cannot be reached ({listed['reason']}); task {task['taskId']} waits for it"


def absence_of(task: Mapping[str, Any]) -> str:
    """Return what the log of a task at work says of an agent that is away; empty if it is not away."""
    statuses = [one for one in task.get("events", ()) if one["kind"] == "status"]
    message = statuses[-1].get("message") if statuses else None
    if not message or AWAY_KEY not in message.get("metadata", {}):
        return ""
    return " ".join([part.get("text", "") for part in message["parts"]])


def _without_events(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if name not in ("events", "deliveries", "children")}


def _show(hub: HubTasks, task: dict[str, Any], wanted: str = "") -> None:
    state = task["state"]
    if hub.config.as_json:
        print_json(task)
    else:
        print_task(task)
        if state in AT_WORK:
            print_next(hub.command("task watch", task["taskId"]))
        elif state.endswith("-required"):
            print_next(hub.answer_command(task))
    if state in _SETTLED_WARNINGS and state != wanted:
        print_notice("Warning", f"the task ended: {state}")
