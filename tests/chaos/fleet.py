"""Real servers over one store, and what can be done to them: killed, frozen, started again, traced."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.checker import Violation, check
from tests.chaos.client import now_ms
from tests.chaos.history import Death, History, collect
from tests.harness import ServerProcess
from trunkline.store.url import store_from_url

ROOT = Path(__file__).resolve().parents[2]
TARGET = "tests.chaos.agent:agent"
KEYS = {f"c{place}": f"chaos-key-{place}" for place in range(5)}


class Server:
    """One place in the fleet. Each start is a life of its own, with its own name."""

    def __init__(self, directory: Path, place: int, store: str, history: History, *flags: str) -> None:
        keys = [flag for key in KEYS.values() for flag in ("--key", key)]
        self._process = ServerProcess(
            directory, TARGET, *keys, "--set", "log_level=warning", *flags,
            store=store, env={"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))},
        )  # fmt: skip
        self._plain = list(self._process._command)
        self._place = place
        self._life = 0
        self._history = history
        self.up = asyncio.Event()
        self.started_at = 0.0
        self.frozen = False

    @property
    def name(self) -> str:
        return f"s{self._place}#{self._life}"

    @property
    def port(self) -> int:
        return self._process.port

    @property
    def pid(self) -> int:
        assert self._process.process is not None
        return self._process.process.pid

    @property
    def running(self) -> bool:
        process = self._process.process
        return process is not None and process.poll() is None

    def faked(self, library: str, offset: Path) -> None:
        """Live by a clock that stands in a file; the steady one that counts seconds stays as it is."""
        self._process._env |= {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    async def start(self, *wrap: str) -> float:
        """Begin a life, within a tracer if one is named; the seconds until it listens."""
        self._life += 1
        self._process._command = [*wrap, *self._plain]
        self.started_at = time.monotonic()
        await asyncio.to_thread(self._process.start)
        self.up.set()
        return time.monotonic() - self.started_at

    async def kill(self) -> None:
        """kill -9."""
        self.up.clear()
        self._history.deaths.append(Death(self.name, now_ms()))
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        await self.gone()

    async def gone(self, limit_s: float = 30.0) -> int:
        """Wait for its end, however it came about."""
        assert self._process.process is not None
        code = await asyncio.to_thread(self._process.process.wait, limit_s)
        self.up.clear()
        return code

    def died(self) -> None:
        """Note an end that came from elsewhere."""
        self.up.clear()
        self._history.deaths.append(Death(self.name, now_ms()))

    def freeze(self) -> None:
        """SIGSTOP: to everybody else it is dead."""
        self._history.deaths.append(Death(self.name, now_ms()))
        self.frozen = True
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    async def stop(self, limit_s: float = 40.0) -> tuple[int, float]:
        """SIGTERM; its exit code and the seconds it took."""
        self.up.clear()
        self._history.deaths.append(Death(self.name, now_ms()))
        began = time.monotonic()
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        return await self.gone(limit_s), time.monotonic() - began

    def end(self) -> None:
        """At the end of a row, whatever state it is in."""
        if self.running:
            if self.frozen:
                self.thaw()
            os.kill(self.pid, signal.SIGKILL)
            assert self._process.process is not None
            self._process.process.wait(10)

    def text(self) -> str:
        """What it logged, over all its lives."""
        return self._process.text()

    def memory_kb(self) -> int:
        """Resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def descriptors(self) -> int:
        """Open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Fleet:
    """Some servers over one store."""

    def __init__(self, directory: Path, count: int, url: str, history: History, *flags: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.url = url
        self.history = history
        self.servers = [Server(directory, place, url, history, *flags) for place in range(count)]

    async def start(self) -> None:
        """All of them."""
        for server in self.servers:
            await server.start()

    async def stop(self) -> list[tuple[int, float]]:
        """All of them, by SIGTERM."""
        return list(await asyncio.gather(*(server.stop() for server in self.servers if server.running)))

    def end(self) -> None:
        """None of them is left."""
        for server in self.servers:
            server.end()

    async def judge(self, *, at_rest: bool = True, strict: bool = False) -> list[Violation]:
        """Stop what runs, read the store and check everything; what is broken is kept for a look."""
        found: list[Violation] = []
        for code, _ in await self.stop():
            if code != 0:
                found.append(Violation("END", "-", f"a server ended with {code} after SIGTERM"))
        found += await judge(self.url, self.history, at_rest=at_rest, strict=strict)
        found += [
            Violation("LOG", "-", f"{server.name} logged a traceback")
            for server in self.servers
            if "Traceback" in server.text()
        ]
        if found:
            self.history.save(self.directory / "history.json")
            print(f"    kept: {self.directory}")
            for violation in found[:12]:
                print(f"    {violation}")
        return found


async def judge(url: str, history: History, *, at_rest: bool = True, strict: bool = False) -> list[Violation]:
    """Open the store that the servers have left, and check it."""
    store = store_from_url(url)
    await store.open()
    try:
        logs = await collect(store)
    finally:
        await store.close()
    return check(logs, history, at_rest=at_rest, strict=strict)


def strace(*inject: str) -> tuple[str, ...]:
    """A tracer to start a server in; the pid stays the server's."""
    # The filter that slows only the named calls does not deliver injected signals.
    quick = () if any("signal=" in one for one in inject) else ("--seccomp-bpf",)
    calls = ",".join(dict.fromkeys(one.partition(":")[0] for one in inject))
    injections = [word for one in inject for word in ("-e", f"inject={one}")]
    return (
        "strace", "-D", "-f", "-qq", *quick, "-o", os.devnull, "-e", f"trace={calls}", *injections,
    )  # fmt: skip


def works(command: list[str]) -> bool:
    """Whether a tool that a row needs is there."""
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


PYTHON = sys.executable
