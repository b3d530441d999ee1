"""`trunkline task get`, `list`, `cancel`, `subscribe`, `download` and `push-config …`.

Artifacts are saved as files never outside the folder and never over another file.
"""

from __future__ import annotations

import mimetypes
import os
import re
from pathlib import Path

import msgspec
from msgspec import UNSET

from trunkline.cli.console import print_field, print_json, print_notice
from trunkline.cli.next_command import print_next
from trunkline.cli.options import CALLING, ON_HUB
from trunkline.cli.parsing import Commands
from trunkline.cli.results import file_bytes, follow, show_ids, show_result, show_stream, show_task
from trunkline.cli.session import Session
from trunkline.config import Secret
from trunkline.errors import Misuse, PushNotSupported, TaskNotCancelable
from trunkline.wire import v1
from trunkline.wire.push import write_config, write_configs
from trunkline.wire.spellings import state_named
from trunkline.wire.types import RESTING, STATES, Artifact, Part, PushConfig, TaskState
from trunkline.wire.writer import Dialect

commands, push = Commands(), Commands()
commands.add_typer(push, name="push-config", help="Manage the webhooks of a task: create, get, list, delete.")
ONE_TASK, ONE_CONFIG = "[URL] TASK", "[URL] TASK CONFIG"
TASK = "URL of the agent, unless -a is given, and the ID of the task."
_HUB_TASK = "URL of the agent, unless -a is given, and the ID of the task. For a hub, the ID alone."
_CONFIG = "URL of the agent, unless -a is given, and the IDs of the task and the configuration."
_ID = "the task's id"
# What a name may be made of on any system; the rest becomes an underscore.
_UNSAFE = re.compile(r"[^A-Za-z0-9._ ()\-]+")
_LONGEST = 120
# What a list was asked for, as the command for its next page repeats it.
_FILTERS = ("status", "context_id", "page_size", "history")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


@commands.calling(
    "get", "wait", "history", *ON_HUB, *CALLING, "poll-interval", "stream",
    arguments=ONE_TASK, about=_HUB_TASK, on_hub="get",
)  # fmt: skip
async def get(session: Session) -> None:
    """Show the current state of a task, or wait for its end."""
    session.task_id = session.argument(_ID)
    await session.compatible_card()
    config, client = session.config, session.client
    result = await client.get(session.task_id, history_length=config.count("history"))
    if config.flag("wait") and result.state not in RESTING:
        result = await client.wait(session.task_id)
        if config.count("history") is not None:
            result = await client.get(session.task_id, history_length=config.count("history"))
    show_result(session, result, wrapped=False)


@commands.calling(
    "list",
    "status", "context-id", "agent", "page-size", "page-token", "history", "artifacts",
    *ON_HUB, *CALLING, "stream",
    arguments="[URL]", about="URL of the agent, unless -a is given.", on_hub="list",
)  # fmt: skip
async def list_(session: Session) -> None:
    """List tasks, a page at a time."""
    config = session.config
    if session.arguments:
        raise Misuse(f"{session.arguments[0]!r} is too much; name the agent by its whole URL or -a")
    status = _state(config.text("status"))
    await session.compatible_card()
    page = await session.client.list(
        context_id=config.text("context-id"),
        status=status,
        page_size=config.count("page-size") or 50,
        page_token=config.text("page-token"),
        history_length=config.count("history"),
        include_artifacts=config.flag("artifacts"),
    )
    if config.as_json and config.flag("stream"):
        for task in page.tasks:
            print_json(v1.task(task), compact=True)
    elif config.as_json:
        print_json(v1.page(page))
    else:
        for task in page.tasks:
            history = config.count("history") is not None
            show_task(task, verbose=config.flag("verbose"), history=history)
        print_field("Tasks", f"{len(page.tasks)} of {page.total_size}")
        if page.next_page_token:
            kept = {name: str(session.invocation.flags.get(name, "")) for name in _FILTERS}
            flags = ["--artifacts"] if session.invocation.flags.get("artifacts") else []
            print_next(session.command("task list", flags=flags, page_token=page.next_page_token, **kept))


@commands.calling("cancel", *ON_HUB, *CALLING, "stream", arguments=ONE_TASK, about=_HUB_TASK, on_hub="cancel")
async def cancel(session: Session) -> None:
    """Cancel a task."""
    session.task_id = session.argument(_ID)
    await session.compatible_card()
    try:
        result = await session.client.cancel(session.task_id)
    except TaskNotCancelable:
        result = await session.client.get(session.task_id)
        # Who cancels twice has what was wanted.
        if result.state is not TaskState.CANCELED:
            raise
    show_result(session, result, wrapped=False, wanted=TaskState.CANCELED)


@commands.calling(
    "watch", *ON_HUB, *CALLING, "poll-interval",
    arguments=ONE_TASK, about=_HUB_TASK, on_hub="watch", stream=True,
)  # fmt: skip
@commands.calling("subscribe", *CALLING, "poll-interval", "stream", arguments=ONE_TASK, about=TASK)
async def subscribe(session: Session) -> None:
    """Follow a task until it ends or asks for something."""
    session.task_id = session.argument(_ID)
    card = await session.compatible_card()
    if not card.streaming:
        result = await session.client.wait(session.task_id)
        show_result(session, result, wrapped=session.config.flag("stream"))
    elif session.config.flag("stream"):
        await show_stream(session, session.client.subscribe(session.task_id), asked=True)
    else:
        result = await follow(session, session.client.subscribe(session.task_id), asked=True)
        show_result(session, result, wrapped=False)


def _state(told: str) -> TaskState | None:
    if not told:
        return None
    state = state_named(told)
    if state not in STATES:
        names = ", ".join(each.name.lower() for each in STATES)
        raise Misuse(f"--status {told}: choose one of {names}")
    return state


@commands.calling("download", "dir", "force", *CALLING, arguments=ONE_TASK, about=TASK)
async def download(session: Session) -> None:
    """Save a task's artifacts as files."""
    config = session.config
    session.task_id = session.argument(_ID)
    await session.compatible_card()
    result = await session.client.get(session.task_id)
    task = result.task
    if task is None:
        raise Misuse(f"{session.task_id} is no task")
    saved = save(task.artifacts, Path(config.text("dir")), force=config.flag("force"))
    if config.as_json:
        print_json(v1.task(task))
        for path in saved:
            print_notice("Saved", str(path))
        return
    show_ids(task.id, task.context_id, task.status.state.value)
    for path in saved:
        print_field("Saved", str(path))
    print_field("Files", str(len(saved)))


def save(artifacts: tuple[Artifact, ...], folder: Path, *, force: bool) -> list[Path]:
    """Write every part that is here into the folder; what is elsewhere is said and not fetched.

    Raises:
        Misuse: a file is there already, or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved, taken = list[Path](), dict[str, int]()
    for artifact in artifacts:
        for place, part in enumerate(artifact.parts):
            if part.url is not None:
                name = part.filename or artifact.artifact_id
                print_notice("Warning", f"{name} is at {part.url}; it is not fetched")
                continue
            name = _free(safe_name(artifact, place, part), taken)
            saved.append(_write(folder / name, _bytes(part), force=force))
    return saved


def safe_name(artifact: Artifact, place: int, part: Part) -> str:
    """A file's name from what the agent calls it: one name, no path, nothing hidden, nothing special."""
    told = part.filename or artifact.name or artifact.artifact_id
    name = _UNSAFE.sub("_", re.split(r"[/\\]", told)[-1]).lstrip(". -").rstrip(". ")
    stem, dot, ending = name.rpartition(".")
    if not part.filename:
        stem, dot, ending = name, ".", _ending(part)
        stem += f"-{place}" if len(artifact.parts) > 1 else ""
    whole = f"{stem[:_LONGEST]}{dot}{ending[:16]}" if dot else ending[:_LONGEST]
    whole = whole.strip(". ") or f"artifact-{place}"
    return f"_{whole}" if _RESERVED.fullmatch(whole) else whole


def _ending(part: Part) -> str:
    if part.data is not UNSET:
        return "json"
    if part.text is not None and part.media_type in {"", "text/plain"}:
        return "txt"
    return (mimetypes.guess_extension(part.media_type) or ".bin").removeprefix(".")


def _free(name: str, taken: dict[str, int]) -> str:
    """A name that no other file of this task has; two artifacts may be called the same."""
    stem, dot, ending = name.rpartition(".")
    found, number = name, taken.get(name.lower(), 1)
    while found.lower() in taken:
        number += 1
        found = f"{stem}-{number}.{ending}" if dot else f"{name}-{number}"
    # Where to go on: there may be thousands of one name.
    taken[name.lower()] = number
    taken.setdefault(found.lower(), 1)
    return found


def _bytes(part: Part) -> bytes:
    if part.text is not None:
        return part.text.encode()
    if part.data is not UNSET:
        return msgspec.json.format(msgspec.json.encode(part.data)) + b"\n"
    return file_bytes(part)


def _write(path: Path, body: bytes, *, force: bool) -> Path:
    # A link that lies there already must not lead elsewhere.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if force else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError:
        raise Misuse(
            f"{path} is there already; --force writes over it, --dir chooses another folder"
        ) from None
    except OSError as error:
        raise Misuse(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(body)
    return path


@push.calling(
    "create", "url", "id", "token", "scheme", "credentials", *CALLING, arguments=ONE_TASK, about=TASK
)
async def create_push(session: Session) -> None:
    """Register a webhook for a task."""
    config, task_id = session.config, session.argument(_ID)
    if not config.text("url"):
        raise Misuse("--url says where the webhook is")
    if config.secret("credentials") and not config.text("scheme"):
        raise Misuse("--credentials go with a --scheme such as Bearer")
    await _require_push(session)
    wanted = PushConfig(
        url=config.text("url"),
        id=config.text("id"),
        token=_revealed(config.secret("token")),
        scheme=config.text("scheme"),
        credentials=_revealed(config.secret("credentials")),
    )
    _show_config(session, task_id, await session.client.set_push(task_id, wanted))


@push.calling("get", *CALLING, arguments=ONE_CONFIG, about=_CONFIG)
async def get_push(session: Session) -> None:
    """Show one webhook configuration."""
    task_id, config_id = _task_and_config(session)
    await _require_push(session)
    _show_config(session, task_id, await session.client.get_push(task_id, config_id))


@push.calling("list", *CALLING, arguments=ONE_TASK, about=TASK)
async def list_push(session: Session) -> None:
    """List the webhook configurations of a task."""
    task_id = session.argument(_ID)
    await _require_push(session)
    configs = list(await session.client.list_push(task_id))
    if session.config.as_json:
        print_json(write_configs(task_id, configs, Dialect.V1))
        return
    print_field("Task", task_id)
    for config in configs:
        print_field("Config", f"{config.id} {config.url}")
    print_field("Configs", str(len(configs)))


@push.calling("delete", *CALLING, arguments=ONE_CONFIG, about=_CONFIG)
async def delete_push(session: Session) -> None:
    """Delete a webhook configuration."""
    task_id, config_id = _task_and_config(session)
    await _require_push(session)
    await session.client.delete_push(task_id, config_id)
    if session.config.as_json:
        print_json(b"{}")
        return
    print_field("Task", task_id)
    print_field("Deleted", config_id)


async def _require_push(session: Session) -> None:
    """Ask the card before the agent is asked."""
    if not (await session.compatible_card()).push:
        raise PushNotSupported("the card says that this agent sends no push notifications")


def _task_and_config(session: Session) -> tuple[str, str]:
    if len(session.arguments) != 2:
        raise Misuse(
            "give the task's id and the config's, and name the agent by its whole URL first or by -a"
        )
    return session.arguments[0], session.arguments[1]


def _revealed(secret: Secret | None) -> str:
    return "" if secret is None else secret.reveal()


def _show_config(session: Session, task_id: str, config: PushConfig) -> None:
    if session.config.as_json:
        print_json(write_config(task_id, config, Dialect.V1))
        return
    print_field("Task", task_id)
    print_field("Config", config.id)
    print_field("Url", config.url)
