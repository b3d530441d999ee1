"""Where a database is, how to dial it, and what its errors mean for whoever waits."""

from __future__ import annotations

import re
import shlex
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from trunkline.clock import random_bits
from trunkline.config import Secret
from trunkline.errors import Misuse, StoreError

if TYPE_CHECKING:
    from asyncpg import Connection as _Connection
    from asyncpg import Record

    Connection = _Connection[Record]

SCHEMA = "trunkline"
EVERY_TENANT = "*"
STATEMENT_SECONDS = 5.0
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}\Z")
_PORT = re.compile(r":([0-9]{1,5})\Z")
_UNREADABLE = (
    "the URL of the store cannot be read: write / : @ # ? % in its login as %2F %3A %40 %23 %3F %25, "
    "as in postgresql://user:p%40ss@host:5432/database"
)

# The driver's and the network's; data that cannot be encoded come as ValueError and are not among them.
DATABASE_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# SQLSTATE classes that lie in what was to be written: data, constraints, limits of the program.
_DATA = ("22", "23", "54")
# Deadlock and failed serialisation: nothing is wrong with either side, try again.
_RACES = ("40001", "40P01")
# The session is over or will not begin: connection exceptions, shutdowns, crash, start.
_SESSION_OVER = ("08", "57P")


class DatabaseAddress:
    """A database by its URL, without the parameters that are ours: `schema`."""

    __slots__ = ("_dsn", "_password", "name", "process", "schema")

    def __init__(self, url: str) -> None:
        """Take a URL apart.

        Raises:
            Misuse: it cannot be read, or names a schema that is no plain name.
        """
        try:
            parts = urlsplit(url)
            password = parts.password
        except ValueError:
            raise Misuse(_UNREADABLE) from None
        if parts.fragment or parts.netloc.count("@") > 1 or "@" in f"{parts.path}{parts.query}":
            # What follows is a piece of a password; to go on would dial and print it.
            raise Misuse(_UNREADABLE)
        query = parse_qsl(parts.query, keep_blank_values=True)
        self.schema = dict(query).get("schema", SCHEMA)
        if not _SCHEMA.match(self.schema):
            raise Misuse(f"schema={self.schema!r} must be lower-case letters, digits and _, 41 at most")
        rest = [(name, value) for name, value in query if name != "schema"]
        self._dsn = Secret(urlunsplit(parts._replace(query=urlencode(rest))))
        self._password = Secret(password or dict(query).get("password", ""))
        # In the name of every session, so that others see whether any of this process is left.
        self.process = f"{random_bits(64):016x}"
        self.name = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def connect(
        self, role: str, *, seconds: float, statement_s: float = STATEMENT_SECONDS, **settings: str
    ) -> Connection:
        """A new session that sees every tenant; `role` is how the server's list of sessions calls it.

        Raises:
            StoreError: there is none to be had; says why, without the password.
        """
        try:
            return await asyncpg.connect(
                self._dsn.reveal(),
                timeout=seconds,
                command_timeout=statement_s,
                max_cached_statement_lifetime=0,
                server_settings={
                    "application_name": f"trunkline {role} {self.process}",
                    "search_path": f'"{self.schema}"',
                    "trunkline.tenant": EVERY_TENANT,
                    "statement_timeout": f"{statement_s:.0f}s",
                    "idle_in_transaction_session_timeout": f"{statement_s:.0f}s",
                    # Plans over 16 partitions are made once, not for each call.
                    "plan_cache_mode": "force_generic_plan",
                    "jit": "off",
                    # The session of a process that died in a statement ends soon, not with the statement.
                    "client_connection_check_interval": "100ms",
                }
                | settings,
            )
        except (*DATABASE_ERRORS, ValueError, OverflowError) as error:
            problem, hint = self._explain_failure(error)
            raise StoreError(f"{self.name} {problem}: {self.told(error)}", hint=hint) from None

    def _explain_failure(self, error: BaseException) -> tuple[str, str]:
        """Return what failed while connecting, and the command to run next."""
        parts = urlsplit(self._dsn.reveal())
        at = ["--host", parts.hostname] if parts.hostname else []
        if number := _PORT.search(parts.netloc):
            at += ["--port", number[1]]
        user, database = unquote(parts.username or "") or "ROLE", unquote(parts.path[1:]) or "DATABASE"
        as_admin = [*at, "--username", "postgres"]
        if isinstance(error, asyncpg.InvalidCatalogNameError):
            return "cannot be opened", shlex.join(["createdb", *as_admin, "--owner", user, database])
        if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
            # A wrong password is an error of this class too.
            if "does not exist" in str(error):
                return "refuses the login", shlex.join(["createuser", *as_admin, user])
            return "refuses the login", shlex.join(["psql", *at, "--username", user, database])
        return "cannot be reached", f"pg_isready --dbname {self.name}"

    def told(self, error: BaseException) -> str:
        """An error in words, without the password."""
        text = str(error) or (
            "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        )
        password = self._password.reveal()
        for secret in {password, unquote(password)} - {""}:
            text = text.replace(secret, "***")
        return text.splitlines()[0]


def is_data(error: BaseException) -> bool:
    """Whether the fault lies in the data: alone it fails without its neighbours."""
    if isinstance(error, asyncpg.PostgresError):
        return _state(error).startswith(_DATA)
    return isinstance(error, ValueError | OverflowError | TypeError)


def is_race(error: BaseException) -> bool:
    """Whether two statements got into each other's way, and one was undone."""
    return isinstance(error, asyncpg.PostgresError) and _state(error) in _RACES


def is_taken(error: BaseException) -> bool:
    """Whether something that must be unique was there."""
    return isinstance(error, asyncpg.UniqueViolationError)


def is_loss(error: BaseException) -> bool:
    """Whether the session went away: what was under way may or may not have been written."""
    if isinstance(error, asyncpg.PostgresError):
        return _state(error).startswith(_SESSION_OVER)
    return isinstance(error, DATABASE_ERRORS) and not isinstance(error, ValueError)


def _state(error: asyncpg.PostgresError) -> str:
    return getattr(error, "sqlstate", None) or ""


def lock_key(schema: str, name: str) -> int:
    """The number of an advisory lock."""
    digest = blake2b(f"{schema}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
