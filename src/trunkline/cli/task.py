"""`trunkline task get`, `list`, `cancel`, `subscribe` and `push-config …`."""

from __future__ import annotations

from trunkline.cli.configuration import ClientConfiguration
from trunkline.cli.console import print_field, print_json
from trunkline.cli.download import download
from trunkline.cli.options import CALLING
from trunkline.cli.parsing import Commands
from trunkline.cli.results import follow, show_result, show_stream, show_task
from trunkline.cli.session import Session
from trunkline.config import Secret
from trunkline.errors import Misuse, PushNotSupported, TaskNotCancelable
from trunkline.wire import v1
from trunkline.wire.push import write_config, write_configs
from trunkline.wire.spellings import state_named
from trunkline.wire.types import RESTING, STATES, PushConfig, TaskState
from trunkline.wire.writer import Dialect

commands, push = Commands(), Commands()
commands.add_typer(
    push, name="push-config", help="Webhooks that are told of a task: create, get, list, delete."
)
ONE_TASK, ONE_CONFIG = "[URL] TASK", "[URL] TASK CONFIG"
TASK = "The agent's URL, unless -a names it, and the task's id."
_CONFIG = "The agent's URL, unless -a names it, the task's id and the config's."
_ID = "the task's id"


@commands.calling(
    "get", "wait", "history", *CALLING, "poll-interval", "stream", arguments=ONE_TASK, about=TASK
)
async def get(session: Session) -> None:
    """Show a task as it stands, or wait for its end."""
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
    "status", "context-id", "page-size", "page-token", "history", "artifacts", *CALLING, "stream",
    arguments="[URL]", about="The agent's URL, unless -a names it.",
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
    if config.as_json and config.streams:
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
            print_field("Next", session.command("task list", page_token=page.next_page_token))


@commands.calling("cancel", *CALLING, "stream", arguments=ONE_TASK, about=TASK)
async def cancel(session: Session) -> None:
    """Stop a task."""
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


@commands.calling("subscribe", *CALLING, "poll-interval", "stream", arguments=ONE_TASK, about=TASK)
async def subscribe(session: Session) -> None:
    """Follow a task until it ends or asks for something."""
    session.task_id = session.argument(_ID)
    card = await session.compatible_card()
    if not card.streaming:
        result = await session.client.wait(session.task_id)
        show_result(session, result, wrapped=session.config.streams)
    elif session.config.streams:
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


commands.calling("download", "dir", "force", *CALLING, arguments=ONE_TASK, about=TASK)(download)


@push.calling(
    "create", "url", "id", "token", "scheme", "credentials", *CALLING, arguments=ONE_TASK, about=TASK
)
async def create_push(session: Session) -> None:
    """Have a webhook told of a task."""
    config, task_id = session.config, session.argument(_ID)
    if not config.text("url"):
        raise Misuse("--url says where the webhook is")
    if config.secret("credentials") and not config.text("scheme"):
        raise Misuse("--credentials go with a --scheme such as Bearer")
    await _require_push(session)
    made = await session.client.set_push(task_id, _config(config))
    _show_config(session, task_id, made)


@push.calling("get", *CALLING, arguments=ONE_CONFIG, about=_CONFIG)
async def get_push(session: Session) -> None:
    """Show one config."""
    task_id, config_id = _task_and_config(session)
    await _require_push(session)
    _show_config(session, task_id, await session.client.get_push(task_id, config_id))


@push.calling("list", *CALLING, arguments=ONE_TASK, about=TASK)
async def list_push(session: Session) -> None:
    """List a task's configs."""
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
    """Forget a config."""
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


def _config(config: ClientConfiguration) -> PushConfig:
    return PushConfig(
        url=config.text("url"),
        id=config.text("id"),
        token=_revealed(config.secret("token")),
        scheme=config.text("scheme"),
        credentials=_revealed(config.secret("credentials")),
    )


def _revealed(secret: Secret | None) -> str:
    return "" if secret is None else secret.reveal()


def _show_config(session: Session, task_id: str, config: PushConfig) -> None:
    if session.config.as_json:
        print_json(write_config(task_id, config, Dialect.V1))
        return
    print_field("Task", task_id)
    print_field("Config", config.id)
    print_field("Url", config.url)
