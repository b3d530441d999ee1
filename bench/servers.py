"""The servers under test: how each is installed, started on its own core, watched and ended."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bench import database
from bench.generator import HOST, Endpoint

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".bench"
PEERS = Path(__file__).parent / "peers"
CARD = "/.well-known/agent-card.json"
SERVER_CPU, GENERATOR_CPU = 0, 1
UVICORN = "uvicorn[standard]>=0.54"
# Read before anything is pinned: afterwards this process sees one core only.
_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@dataclass(frozen=True)
class Contender:
    """One server in the table."""

    name: str
    label: str
    arguments: tuple[str, ...]
    packages: tuple[str, ...] = ()
    environment: str = ""  # folder of its virtual environment; empty: the one this runs in
    path: str = "/"
    waits: bool = True  # a send answers the finished task
    keeps: bool = True  # really runs tasks: the limit does not
    pinned: bool = True  # on one core; where a database works too, all share all cores
    key: str = ""  # sent with every request
    stored: bool = False  # a part that speaks to PostgreSQL itself

    @property
    def serves(self) -> bool:
        """Whether it is a server at all, and not a part of one."""
        return bool(self.arguments)

    @property
    def needs_database(self) -> bool:
        """Whether it runs on PostgreSQL."""
        return self.stored or "{database}" in self.arguments

    def command(self, port: int, scratch: Path, database: str) -> list[str]:
        """The command line, with the port, a fresh folder and a database filled in."""
        words = [word.format(port=port, scratch=scratch, database=database) for word in self.arguments]
        if not self.environment:
            return [str(Path(sys.executable).with_name("trunkline")), *words]
        return [str(WORK / self.environment / "bin" / "python"), str(PEERS / words[0]), *words[1:]]


KEY = "a-key-of-the-bench"
OPTIONS = ("--host", HOST, "--port", "{port}", "--log-level", "warning", "--store")
SERVE = ("serve", "trunkline.demo:agent", *OPTIONS)
TENANTS = ("--set", "egress_networks=127.0.0.0/8", "--set", "rate_limit=1000000")
SDK = ("a2a-sdk[http-server,postgresql,sqlite]==1.3.0", UVICORN)

CONTENDERS = {
    each.name: each
    for each in (
        Contender("trunkline", "Trunkline, SQLite", (*SERVE, "sqlite:///{scratch}/tasks.db"), path="/a2a"),
        Contender(
            "trunkline-waiting",
            "Trunkline, SQLite, tasks that wait",
            ("serve", "bench.agent:waiter", *OPTIONS, "sqlite:///{scratch}/tasks.db"),
            path="/a2a",
            keeps=False,
        ),
        Contender(
            "trunkline-hub",
            "Trunkline hub, SQLite",
            ("hub", "{scratch}", *OPTIONS, "sqlite:///{scratch}/tasks.db"),
            path="/v1/a2a/agents/worker",
            keeps=False,
        ),
        *[
            Contender(
                name,
                f"Trunkline hub, {what}",
                ("hub", "{scratch}", *OPTIONS, "sqlite:///{scratch}/tasks.db", "--key", KEY, *TENANTS),
                path="/v1/a2a/agents/worker",
                keeps=False,
                key=KEY,
            )
            for name, what in (
                ("trunkline-tenants", "many tenants"),
                ("trunkline-tenant", "one tenant"),
                ("trunkline-noise", "a noisy tenant"),
                ("trunkline-starved", "a tenant whose workflows use all they may"),
                ("trunkline-calm", "a quiet tenant alone"),
            )
        ],
        Contender(
            "trunkline-quiet",
            "Trunkline, memory, without streams",
            ("serve", "bench.agent:quiet", *OPTIONS, "memory:", "--dev"),
            path="/a2a",
        ),
        Contender(
            "trunkline-ticking",
            "Trunkline, memory, with ticks",
            ("serve", "bench.agent:agent", *OPTIONS, "memory:"),
            path="/a2a",
        ),
        Contender("trunkline-memory", "Trunkline, memory", (*SERVE, "memory:"), path="/a2a"),
        Contender("a2a-sdk", "a2a-sdk 1.3.0, memory", ("sdk_agent.py", "{port}", "memory"), SDK, "a2a-sdk"),
        Contender(
            "a2a-sdk-sqlite", "a2a-sdk 1.3.0, SQLite", ("sdk_agent.py", "{port}", "sqlite"), SDK, "a2a-sdk"
        ),
        Contender(
            "fasta2a",
            "fasta2a 2.1.1, memory",
            ("fasta2a_agent.py", "{port}"),
            ("fasta2a==2.1.1", UVICORN),
            "fasta2a",
            waits=False,
        ),
        Contender(
            "trunkline-postgres",
            "Trunkline, PostgreSQL, 2 processes",
            (*SERVE, "{database}", "--workers", "2"),
            path="/a2a",
            pinned=False,
        ),
        Contender(
            "trunkline-replicas",
            "Trunkline, PostgreSQL, replicas",
            ("serve", "bench.agent:agent", *OPTIONS, "{database}"),
            path="/a2a",
            pinned=False,
        ),
        Contender(
            "a2a-sdk-postgres",
            "a2a-sdk 1.3.0, PostgreSQL",
            ("sdk_agent.py", "{port}", "{database}"),
            SDK,
            "a2a-sdk",
            pinned=False,
        ),
        Contender("trunkline-store", "Trunkline's PostgreSQL store", (), stored=True),
        Contender("asyncpg", "bare asyncpg", (), stored=True),
        Contender("trunkline-courier", "Trunkline's courier, SQLite", ()),
        Contender("trunkline-hang", "Trunkline's courier, one target hangs", ()),
        Contender("httpx2", "bare httpx2", ()),
        Contender("spine-memory", "Trunkline's runner, memory", ()),
        Contender("flow-memory", "Trunkline's workflows, memory", ()),
        Contender("spine-sqlite", "Trunkline's runner, SQLite", ()),
        Contender("flow-sqlite", "Trunkline's workflows, SQLite", ()),
        Contender("trunkline-client", "Trunkline's client", ()),
        Contender("a2a-sdk-client", "a2a-sdk 1.3.0's client", (), SDK, "a2a-sdk"),
        Contender(
            "trunkline-all",
            "Trunkline, SQLite, all switched on",
            (
                "serve",
                "bench.traced:agent",
                *OPTIONS,
                "sqlite:///{scratch}/tasks.db",
                "--metrics",
                "--key",
                KEY,
                "--set",
                "rate_limit=1000000",
                "--set",
                "concurrency_limit=100000",
            ),
            path="/a2a",
            key=KEY,
        ),
        Contender(
            "trunkline-spine",
            "Trunkline, SQLite, push off",
            (*SERVE, "sqlite:///{scratch}/tasks.db", "--set", "push=false"),
            path="/a2a",
        ),
        Contender("asgi", "bare ASGI", ("asgi_limit.py", "{port}"), (UVICORN,), "asgi", keeps=False),
    )
}


def install(contender: Contender) -> None:
    """Make the contender's virtual environment, once; our own code is compiled as pip would."""
    if not contender.environment:
        compileall.compile_dir(ROOT / "src", quiet=1)
    folder = WORK / contender.environment
    stamp = folder / ".installed"
    wanted = "\n".join(contender.packages)
    if not contender.environment or (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        return
    print(f"installing {', '.join(contender.packages)} into .bench/{contender.environment}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *contender.packages], check=True)
    stamp.write_text(wanted, encoding="utf-8")


def pin(pid: int, cpu: int) -> None:
    """Keep a process on one core, where the system can and there is a second one."""
    if len(_CPUS) >= 2:
        os.sched_setaffinity(pid, {_CPUS[cpu]})


def unpin(pid: int) -> None:
    """Let a process use every core, though its parent may not."""
    if len(_CPUS) >= 2:
        os.sched_setaffinity(pid, _CPUS)


@dataclass
class Server:
    """A running contender in a folder of its own; use it as a context manager."""

    contender: Contender
    database: str = ""  # its URL, when it is shared; else one is made where one is needed
    ready_seconds: float = 0.0
    endpoint: Endpoint = field(init=False)
    scratch: Path = field(init=False)
    _stack: ExitStack = field(init=False)

    def __post_init__(self) -> None:
        scratches = WORK / "scratch"
        scratches.mkdir(parents=True, exist_ok=True)
        # Beside the checkout and not in /tmp, which may be memory: fsync must cost what it costs.
        self.scratch = Path(tempfile.mkdtemp(dir=scratches))
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.endpoint = Endpoint(probe.getsockname()[1], self.contender.path, self.contender.key)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            if self.contender.needs_database and not self.database:
                self.database = stack.enter_context(database.fresh())
            self.start()
            stack.callback(self.stop, signal.SIGTERM)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start it and wait for its card; the time that took is `ready_seconds`."""
        started = time.perf_counter()
        command = self.contender.command(self.endpoint.port, self.scratch, self.database)
        own = {} if self.contender.environment else {"PYTHONPATH": str(ROOT)}  # an agent may be in bench/
        with (self.scratch / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.scratch,
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if self.contender.pinned:
            pin(self.process.pid, SERVER_CPU)
        else:
            unpin(self.process.pid)
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() - started > 60:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self.contender.label} did not start: {' '.join(command)}\n{self.log()}")
            time.sleep(0.001)
        self.ready_seconds = time.perf_counter() - started

    def stop(self, how: signal.Signals) -> None:
        """End it; a server that does not listen to a polite signal is killed."""
        if self.process.poll() is not None:
            return
        family = self._family()
        self.process.send_signal(how)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait(10)

    def log(self) -> str:
        """The last lines it wrote."""
        return (self.scratch / "server.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def cpu(self) -> float:
        """CPU seconds that it and its workers used so far; 0 where there is no /proc."""
        return sum(_cpu(pid) for pid in self._family())

    def _family(self) -> list[int]:
        """It and its workers."""
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        except OSError:
            children = []
        return [pid, *map(int, children)]

    def memory(self) -> float:
        """Resident memory of the process in KiB."""
        try:
            text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii")
            return float(text.partition("\nPss:")[2].split()[0])
        except (OSError, IndexError):
            command = ["ps", "-o", "rss=", "-p", str(self.process.pid)]
            return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.endpoint.port), 5) as sock:
                sock.sendall(f"GET {CARD} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                return b" 200 " in sock.recv(64)
        except OSError:
            return False


def _cpu(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
