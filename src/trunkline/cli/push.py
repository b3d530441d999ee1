"""`trunkline task push-config …`."""

from __future__ import annotations

from trunkline.cli.choices import Choices
from trunkline.cli.command import carry_out
from trunkline.cli.commands.client import Given
from trunkline.cli.screen import document, field
from trunkline.cli.session import Session
from trunkline.config import Secret
from trunkline.errors import Misuse, PushNotSupported
from trunkline.wire.push import write_config, write_configs
from trunkline.wire.types import PushConfig
from trunkline.wire.writer import Dialect


def create(given: Given) -> None:
    """Have a webhook told of a task."""
    carry_out(given, _create)


def get(given: Given) -> None:
    """Show one config."""
    carry_out(given, _get)


def list_(given: Given) -> None:
    """Show all configs of a task."""
    carry_out(given, _list)


def delete(given: Given) -> None:
    """Forget one config."""
    carry_out(given, _delete)


async def _create(session: Session) -> None:
    choices, task_id = session.choices, session.word("the task's id")
    if not choices.text("url"):
        raise Misuse("--url says where the webhook is")
    if choices.secret("credentials") and not choices.text("scheme"):
        raise Misuse("--credentials go with a --scheme such as Bearer")
    await _able(session)
    made = await session.client.set_push(task_id, _config(choices))
    _show(session, task_id, made)


async def _get(session: Session) -> None:
    task_id, config_id = _two(session)
    await _able(session)
    _show(session, task_id, await session.client.get_push(task_id, config_id))


async def _list(session: Session) -> None:
    task_id = session.word("the task's id")
    await _able(session)
    configs = list(await session.client.list_push(task_id))
    if session.choices.as_json:
        document(write_configs(task_id, configs, Dialect.V1), compact=False)
        return
    field("Task", task_id)
    for config in configs:
        field("Config", f"{config.id} {config.url}")
    field("Configs", str(len(configs)))


async def _delete(session: Session) -> None:
    task_id, config_id = _two(session)
    await _able(session)
    await session.client.delete_push(task_id, config_id)
    if session.choices.as_json:
        document(b"{}", compact=False)
        return
    field("Task", task_id)
    field("Deleted", config_id)


async def _able(session: Session) -> None:
    """Ask the card before the agent is asked."""
    if not (await session.spoken_card()).push:
        raise PushNotSupported("the card says that this agent sends no push notifications")


def _two(session: Session) -> tuple[str, str]:
    if len(session.words) != 2:
        raise Misuse(
            "give the task's id and the config's, and name the agent by its whole URL first or by -a"
        )
    return session.words[0], session.words[1]


def _config(choices: Choices) -> PushConfig:
    return PushConfig(
        url=choices.text("url"),
        id=choices.text("id"),
        token=_text(choices.secret("token")),
        scheme=choices.text("scheme"),
        credentials=_text(choices.secret("credentials")),
    )


def _text(secret: Secret | None) -> str:
    return "" if secret is None else secret.reveal()


def _show(session: Session, task_id: str, config: PushConfig) -> None:
    if session.choices.as_json:
        document(write_config(task_id, config, Dialect.V1), compact=False)
        return
    field("Task", task_id)
    field("Config", config.id)
    field("Url", config.url)
