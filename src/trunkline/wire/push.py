"""Push notifications: their configs, read from every dialect and written in one, and the bodies posted."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from trunkline.errors import InvalidParams
from trunkline.wire import v1
from trunkline.wire.decode import read_params
from trunkline.wire.raw import (
    RawAuthentication,
    RawConfiguration,
    RawPushConfig,
    RawPushQuery,
    RawPushRequest,
)
from trunkline.wire.service_parameters import Version
from trunkline.wire.spellings import check_id, plain_task_id
from trunkline.wire.types import (
    RESTING,
    TERMINAL,
    Metadata,
    PushConfig,
    PushQuery,
    PushRequest,
    StatusUpdate,
    Task,
    WireStruct,
)
from trunkline.wire.v03 import V03
from trunkline.wire.writer import Dialect

_set = msgspec.json.Decoder(RawPushRequest)
_query = msgspec.json.Decoder(RawPushQuery)
_encode = msgspec.json.Encoder().encode
# What a header can carry, and no more of it than a header should.
_SCHEME_LIMIT = 64
_CREDENTIALS_LIMIT = 4096
_SCHEME = re.compile(rf"[A-Za-z0-9!#$%&'*+.^_`|~-]{{1,{_SCHEME_LIMIT}}}\Z")
_CREDENTIALS = re.compile(rf"[\x21-\x7e](?:[\x20-\x7e]{{0,{_CREDENTIALS_LIMIT - 2}}}[\x21-\x7e])?\Z")
_URL_LIMIT = 2048
_NO_PATH = frozenset("/\\:")
_COLLECTION = "/pushNotificationConfigs"


def inline_config(wanted: RawConfiguration) -> PushConfig | None:
    """The config that comes with a message.

    Raises:
        InvalidParams: it has no url, or a member that no request could carry.
    """
    for name, raw in (
        ("taskPushNotificationConfig", wanted.task_push_notification_config),
        ("pushNotificationConfig", wanted.push_notification_config),
        ("pushNotification", wanted.push_notification),
    ):
        if raw is not None:
            return _config(raw, f"configuration.{name}.")
    return None


def read_push_request(body: bytes | Raw | None, task_id: str = "") -> PushRequest:
    """Params of setting a config; `task_id` is the one of a path, which wins.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: a member is missing, of the wrong type or out of range.
    """
    raw = read_params(_set, RawPushRequest, body)
    envelope = raw.config
    named = raw.name or (envelope.name if envelope is not None else None) or ""
    of_task, of_config = _named(named)
    inner = raw.push_notification_config or (envelope and envelope.push_notification_config) or None
    path = "" if inner is None else "pushNotificationConfig."
    config = _config(inner or raw, path, raw.config_id or of_config)
    named_task = task_id or raw.task_id or of_task or plain_task_id(raw.parent or "")
    if not named_task and inner is not None:
        # 0.3 has no member `id` around the config, but its relatives name the task so.
        named_task = raw.id or ""
    if not named_task:
        raise InvalidParams("taskId is missing; name the task", field="taskId")
    return PushRequest(named_task, config, raw.tenant or "")


def read_push_query(body: bytes | Raw | None) -> PushQuery:
    """Params of getting, listing or deleting configs.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: the task is missing, or a member does not fit.
    """
    raw = read_params(_query, RawPushQuery, body)
    of_task, of_config = _named(raw.name or raw.parent or "")
    task_id = raw.task_id or (of_task if of_task else raw.id) or ""
    config_id = raw.push_notification_config_id or (raw.id if raw.task_id else "") or of_config
    if not task_id:
        raise InvalidParams("taskId is missing; name the task", field="taskId")
    return PushQuery(task_id, config_id, raw.tenant or "")


def _named(name: str) -> tuple[str, str]:
    """Task and config in `tasks/{id}/pushNotificationConfigs/{id}`."""
    task_id, _, config_id = plain_task_id(name).partition(_COLLECTION)
    return task_id, config_id.removeprefix("/")


def _config(raw: RawPushConfig, path: str, config_id: str = "") -> PushConfig:
    if not raw.url:
        raise InvalidParams(f"{path}url is missing; say where to post", field=f"{path}url")
    if len(raw.url) > _URL_LIMIT or not raw.url.isprintable():
        raise InvalidParams(
            f"{path}url must be at most {_URL_LIMIT} printable characters", field=f"{path}url"
        )
    found = raw.id or config_id
    wanted = raw.authentication or RawAuthentication()
    schemes = (wanted.scheme,) if wanted.scheme else wanted.schemes or ()
    scheme = schemes[0] if schemes else ""
    if scheme and not _SCHEME.match(scheme):
        raise _unsendable(f"{path}authentication.scheme", _SCHEME_LIMIT)
    for name, text in (("token", raw.token), ("authentication.credentials", wanted.credentials)):
        if text and not _CREDENTIALS.match(text):
            raise _unsendable(path + name, _CREDENTIALS_LIMIT)
    return PushConfig(
        url=raw.url,
        id=_config_id(found, f"{path}id") if found else "",
        token=raw.token or "",
        scheme=scheme,
        credentials=wanted.credentials or "",
    )


def _config_id(text: str, field: str) -> str:
    if _NO_PATH.intersection(text):
        raise InvalidParams(f"{field} goes into a path: it may not hold / \\ or :", field=field)
    return check_id(text, field)


def _unsendable(field: str, limit: int) -> InvalidParams:
    message = f"{field}: no header can carry this; use printable ASCII, {limit} characters at the most"
    return InvalidParams(message, field=field)


class _PushConfigDocument(WireStruct, frozen=True):
    # Of 1.0 with its task and tenant, before that without.
    id: str = ""
    task_id: str = ""
    url: str = ""
    token: str = ""
    authentication: Metadata | None = None
    tenant: str = ""


def write_config(task_id: str, config: PushConfig, dialect: Dialect) -> bytes:
    """One config, as setting and getting it answer."""
    return _encode(_written(task_id, config, dialect))


def write_configs(task_id: str, configs: list[PushConfig], dialect: Dialect) -> bytes:
    """All configs of a task: a bare list in 0.3, a page elsewhere."""
    written = [_written(task_id, config, dialect) for config in configs]
    return _encode(written if dialect is Dialect.V03 else {"configs": written, "nextPageToken": ""})


def write_push_request(request: PushRequest, dialect: Dialect, *, bare: bool = False) -> bytes:
    """What asks for a config: the params of JSON-RPC and the body of REST.

    To some servers of REST 0.3 that is the whole request of the proto, to others `bare`: the config in it.
    """
    config = request.config
    written = _written(request.task_id, config, dialect, request.tenant)
    if dialect is Dialect.V03_PROTO and not bare:
        whole = {"parent": f"tasks/{request.task_id}", "config": written}
        return _encode({**whole, "configId": config.id} if config.id else whole)
    return _encode(written)


def inline_struct(config: PushConfig, dialect: Dialect) -> Struct:
    """A config as it goes with a message."""
    shown: Metadata | None = None
    if config.scheme:
        shown = {"scheme": config.scheme} if dialect is Dialect.V1 else {"schemes": (config.scheme,)}
        if config.credentials:
            shown["credentials"] = config.credentials
    return _PushConfigDocument(config.id, "", config.url, config.token, shown)


def _written(task_id: str, config: PushConfig, dialect: Dialect, tenant: str = "") -> Struct | Metadata:
    inner = inline_struct(config, dialect)
    if dialect is Dialect.V1:
        return replace(inner, task_id=task_id, tenant=tenant)
    if dialect is Dialect.V03:
        return {"taskId": task_id, "pushNotificationConfig": inner}
    return {"name": f"tasks/{task_id}{_COLLECTION}/{config.id}", "pushNotificationConfig": inner}


def notification_body(task: Task, version: str, *, whole: bool, metadata: Metadata | None = None) -> bytes:
    """The notification of a task as it stood at the change; `whole` sends the task whatever happened.

    An end always brings its result along: nobody should have to ask for it, or find it gone.
    """
    state = task.status.state
    update = StatusUpdate(task.id, task.context_id, task.status, metadata)
    if version == Version.V1.value:
        if whole or state in TERMINAL:
            return v1.task_frame(v1.task(task))
        return v1.status_frame(update, final=False)
    if whole:
        return V03.task(task)
    artifacts = task.artifacts if state in TERMINAL else ()
    return V03.notification(update, artifacts, final=state in RESTING)
