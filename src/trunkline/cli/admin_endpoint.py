"""Where a running server takes the acts of operators: a file that it writes and their commands read.

Apart from the commands, so that a server starts without what they need.
"""

from __future__ import annotations

import contextlib
import logging
import os
from hashlib import sha256

import msgspec
from msgspec import Struct

from trunkline.cli.configuration import config_folder
from trunkline.clock import random_bits
from trunkline.config import Secret, Settings
from trunkline.http.host_check import hosts_of
from trunkline.store.url import database_file, shown

log = logging.getLogger("trunkline.admin")
_SUFFIX = ".admin"
_SERVERS = "servers"
_ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class AdminEndpoint(Struct, frozen=True):
    """Where a running server takes acts of operators: the Host it lets in, and what proves the operator."""

    url: str
    host: str
    token: str
    pid: str


def write_admin_endpoint(settings: Settings, port: int, token: Secret) -> None:
    """Write where this server is reached, for the commands of who may read the file."""
    path = admin_endpoint_file(settings)
    if path is None:
        return
    name = own_name(settings.host)
    let_in = [_in_url(each) for each in hosts_of(settings)]
    known = f"{name}:{port}" if not let_in or name in let_in else let_in[0]
    endpoint = AdminEndpoint(f"http://{name}:{port}", known, token.reveal(), str(os.getpid()))
    part = f"{path}.{random_bits(64):016x}"
    try:
        if database_file(settings.store) is None:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as out:
            out.write(msgspec.json.encode(endpoint))
        os.replace(part, path)
    except OSError as error:
        log.warning("admin.closed file=%s error=%s", path, error.strerror)


def remove_admin_endpoint(settings: Settings, token: Secret) -> None:
    """Remove the file of this server, unless another server has come meanwhile."""
    path = admin_endpoint_file(settings)
    found = read_admin_endpoint(settings)
    if path is not None and found is not None and found.token == token.reveal():
        with contextlib.suppress(OSError):
            os.unlink(path)


def own_name(bound: str) -> str:
    """The name in a URL by which others on this machine reach a server that is bound so."""
    return _in_url(_ANYWHERE.get(bound, bound))


def _in_url(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def admin_endpoint_file(settings: Settings) -> str | None:
    """The file that tells where the server on a store is reached; None for a store in memory."""
    database = database_file(settings.store)
    if database is not None:
        return f"{database}{_SUFFIX}"
    if settings.store == "memory:":
        return None
    digest = sha256(shown(settings.store).encode()).hexdigest()[:32]
    return str(config_folder() / _SERVERS / f"{digest}{_SUFFIX}")


def read_admin_endpoint(settings: Settings) -> AdminEndpoint | None:
    """The endpoint that the file of a store tells of; None where there is none whose word is taken."""
    path = admin_endpoint_file(settings)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid not in _trusted(path.removesuffix(_SUFFIX)):
                # In a folder where everybody may write, anybody may have put it there.
                return None
            return msgspec.json.decode(file.read(), type=AdminEndpoint)
    except (OSError, msgspec.MsgspecError):
        return None


def _trusted(database: str) -> set[int]:
    """The users whose file is believed: whoever runs the command, and the owner of the database."""
    users = {os.geteuid()}
    with contextlib.suppress(OSError):
        # A server may run as another user than its operator: whoever owns the database has its tasks anyway.
        users.add(os.stat(database).st_uid)
    return users
