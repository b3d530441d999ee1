"""Rows 4, 11 and 14: a disk that fills up, one that loses what was not synced, and a copy that is too old."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.checker import Violation
from tests.chaos.client import BROKEN, Client, Line, Refusal, now_ms, plain_state
from tests.chaos.crowd import Crowd
from tests.chaos.fleet import KEYS, Server, judge, strace, works
from tests.chaos.history import OK, REFUSED, History, Told
from tests.chaos.rows import SQLITE, Result, Run, row, verdict

BLOCK = 4096
STOP_S = 10.0
WHO = "c0"


@row(
    4, "disk full (tmpfs), then space again",
    "refused with Retry-After, reads and streams live; 0 lost; recovery ≤ 2 s", SQLITE,
)  # fmt: skip
async def row_04(run: Run) -> Result:
    disk = run.directory / "disk"
    disk.mkdir()
    with _mounted(disk, "12m") as mounted:
        if not mounted:
            return Result(None, "this user may not mount a tmpfs")
        fleet = run.fleet(url=f"sqlite:///{disk}/tasks.db")
        await fleet.start()
        crowd = Crowd(fleet.servers, run.history, run.seed, 20)
        crowd.start()
        await crowd.until_ack(200)
        ballast = disk / "ballast"
        _fill(ballast)
        refused = await _until_refused(run, 10)
        (server,) = fleet.servers
        status, retry = await _ask_plainly(server)
        reads = await _reads(run, server, crowd)
        await asyncio.sleep(1)
        acks = crowd.acks
        ballast.unlink()
        freed = time.monotonic()
        await crowd.until_ack(acks + 20)
        recovered = time.monotonic() - freed
        await crowd.settle()
        violations = await fleet.judge(strict=True)
        fleet.end()
    return verdict(
        violations,
        f"{refused} refused (HTTP {status}, Retry-After {retry or 'missing'}), {reads} reads meanwhile, "
        f"writes again after {recovered:.2f} s",
        refused > 0, reads > 0, recovered <= 2.0, status == 503, bool(retry),
    )  # fmt: skip


@contextmanager
def _mounted(disk: Path, size: str) -> Iterator[bool]:
    mounted = os.geteuid() == 0 and works(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)])
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False, timeout=20)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * BLOCK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


async def _until_refused(run: Run, count: int) -> int:
    deadline = time.monotonic() + 20
    while (found := sum(one.outcome == REFUSED and one.kind == "send" for one in run.history.told)) < count:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.01)
    return found


async def _ask_plainly(server: Server) -> tuple[int, str]:
    """The status and the Retry-After of a send by HTTP+JSON."""
    body = json.dumps(
        {"message": {"messageId": "plain", "role": "ROLE_USER", "parts": [{"text": "x" * 9000}]}}
    ).encode()
    head = (
        "POST /message:send HTTP/1.1\r\nHost: 127.0.0.1\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
        f"X-API-Key: {KEYS[WHO]}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    line = Line(server)
    status, headers, _ = await line.ask(head.encode() + body)
    line.close()
    return status, headers.get(b"retry-after", b"").decode()


async def _reads(run: Run, server: Server, crowd: Crowd) -> int:
    """How many reads are answered while nothing can be written."""
    client = Client(WHO, KEYS[WHO], run.history)
    mine = [task_id for who, task_id in crowd.ids if who == WHO][:20]
    done = 0
    for task_id in mine:
        told = Told("get", WHO, "", now_ms(), task_id=task_id)
        done += await client.call(server, "GetTask", {"id": task_id}, told) is not None
    client.close()
    return done if done == len(mine) else 0


@row(
    11, "power cut: what was not synced is lost in part (images at fsync marks)",
    "0 acknowledged lost in 500 images", SQLITE,
)  # fmt: skip
async def row_11(run: Run) -> Result:
    if not works(["strace", "-V"]):
        return Result(None, "strace is not installed")
    images = run.count(500, option="kills")
    fleet = run.fleet()
    (server,) = fleet.servers
    await server.start(*strace("fdatasync:signal=SIGSTOP:when=40+1"))
    crowd = Crowd(fleet.servers, run.history, run.seed, 4)
    crowd.start()
    chance = random.Random(run.seed)
    path = run.directory / "tasks.db"
    durable: tuple[bytes, bytes] | None = None
    violations: list[Violation] = []
    made = torn = 0
    while made < images:
        await _stopped(server)
        at = now_ms()
        now = (path.read_bytes(), _bytes(Path(f"{path}-wal")))
        if durable is not None:
            image = tuple(_mixed(before, after, chance) for before, after in zip(durable, now, strict=True))
            torn += image not in (durable, now)
            found = await _inspect(run, image, at)
            violations += found
            made += 1
        durable = now
        os.kill(server.pid, signal.SIGCONT)
        run.say(
            f"{made} of {images} images, {torn} torn, {crowd.acks} acknowledged, {len(violations)} violations"
        )
    crowd.stopping.set()
    # From here on nothing stops any more; the crowd may see its own end.
    await server.kill()
    await server.start()
    await crowd.settle()
    violations += await fleet.judge()
    return verdict(violations, f"{made} images, {torn} of them torn, {crowd.acks} acknowledged writes")


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


async def _stopped(server: Server) -> None:
    """Until the tracer has stopped every thread after a sync."""
    deadline = time.monotonic() + STOP_S
    while not _all_stopped(server.pid):
        if time.monotonic() > deadline:
            raise TimeoutError("the server was not stopped at a sync")
        await asyncio.sleep(0.001)


def _all_stopped(pid: int) -> bool:
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        # A thread ended while we looked.
        return False
    return bool(stats) and all(stat.rpartition(")")[2].split()[0] in "Tt" for stat in stats)


def _mixed(before: bytes, after: bytes, chance: random.Random) -> bytes:
    """What a disk may hold: of the blocks written since the last sync, some are there and some are not."""
    size = len(after) if chance.random() < 0.8 else max(len(before), chance.randrange(len(after) + 1))
    whole = bytearray(after[:size])
    share = chance.random()
    for start in range(0, size, BLOCK):
        old = before[start : start + BLOCK]
        if after[start : start + BLOCK] != old and chance.random() < share:
            whole[start : start + BLOCK] = old.ljust(min(BLOCK, size - start), b"\0")
    return bytes(whole)


async def _inspect(run: Run, image: tuple[bytes, ...], at: int) -> list[Violation]:
    """Open an image as a server would after the cut; all that was acknowledged before must be in it."""
    folder = run.directory / "image"
    folder.mkdir()
    (folder / "tasks.db").write_bytes(image[0])
    (folder / "tasks.db-wal").write_bytes(image[1])
    known = [one for one in run.history.told if one.outcome == OK and one.returned < at and one.message_id]
    try:
        found = await judge(f"sqlite:///{folder}/tasks.db", History(run.seed, _as_of(known)), at_rest=False)
        with sqlite3.connect(folder / "tasks.db") as connection:
            (word,) = connection.execute("PRAGMA integrity_check").fetchone()
        connection.close()
        if word != "ok":
            found.append(Violation("FILE", "-", word))
    finally:
        shutil.rmtree(folder)
    return found


def _as_of(told: list[Told]) -> list[Told]:
    """Without what later events would have to confirm."""
    return [
        Told(one.kind, one.who, "", one.invoked, one.returned, OK, one.message_id, one.task_id)
        for one in told
    ]


@row(14, "a backup is restored; readers come back with newer ids", "a named error, nothing hangs", SQLITE)
async def row_14(run: Run) -> Result:
    fleet = run.fleet()
    (server,) = fleet.servers
    await server.start()
    client = Client(WHO, KEYS[WHO], run.history)
    old = await _send(client, server, "old", "ask")
    await server.stop()
    backup = run.directory / "backup.db"
    shutil.copy(run.directory / "tasks.db", backup)
    await server.start()
    newer = await _send(client, server, "newer", "quick")
    await _send(client, server, "the answer", "", old["id"])
    ids = [frame.seq async for frame, _, _ in _resume(client, server, old["id"], 0)]
    await server.stop()
    for path in run.directory.glob("tasks.db*"):
        path.unlink()
    shutil.copy(backup, run.directory / "tasks.db")
    await server.start()
    began = time.monotonic()
    ahead = await _refusal(client, server, old["id"], ids[-1] or 0)
    gone = await _refusal(client, server, newer["id"], 3)
    took = time.monotonic() - began
    answered = await _send(client, server, "the answer again", "", old["id"])
    client.close()
    # What the backup does not hold is gone; what it holds must still be whole.
    run.history.told.clear()
    violations = await fleet.judge()
    return verdict(
        violations,
        f"a newer Last-Event-ID: {ahead}; an unknown task: {gone}; both within {took * 1000:.0f} ms; "
        f"the restored question was answered: {plain_state(answered)}",
        ahead == -32602, gone == -32001, took < 2, plain_state(answered) == "completed",
    )  # fmt: skip


async def _send(client: Client, server: Server, text: str, skill: str, task_id: str = "") -> dict:
    message = {"messageId": f"backup-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    if task_id:
        message["taskId"] = task_id
    if skill:
        message["metadata"] = {"skillHint": skill}
    told = Told("send", WHO, "", now_ms())
    return (await client.call(server, "SendMessage", {"message": message}, told))["task"]


def _resume(client: Client, server: Server, task_id: str, after: int):
    return client.frames(server, "SubscribeToTask", {"id": task_id}, f"Last-Event-ID: {after}")


async def _refusal(client: Client, server: Server, task_id: str, after: int) -> int:
    try:
        async with asyncio.timeout(10):
            async for _ in _resume(client, server, task_id, after):
                return 0
    except Refusal as refusal:
        return refusal.code
    except BROKEN:
        return 1
    return 0
