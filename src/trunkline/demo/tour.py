"""The tour: starts the demo agent and shows, in the terminal, what it does and what it survives."""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table

from trunkline.clock import random_bits
from trunkline.demo.hook import Hook
from trunkline.demo.ledger import Ledger
from trunkline.demo.lines import CURL, JAVASCRIPT, PYTHON
from trunkline.demo.remote import READY_S, Demo, Gone, StepFailed, free_port, state_of, text_of
from trunkline.log.decide import plain
from trunkline.push import Notification, Receiver

# How often in a row somebody may kill the server before the tour gives up.
PATIENCE = 8
STEPS = 8
TICK_S = 0.1
_COLOURS = {"completed": "green", "canceled": "yellow", "failed": "red", "input-required": "magenta"}


class Tour:
    """The steps, each checked; the first that does not hold ends the tour.

    Whoever kills the server meanwhile becomes part of it: it is started again, and asked what it still knows.
    """

    def __init__(self, demo: Demo, console: Console) -> None:
        self._demo = demo
        self._console = console
        self._ledger = Ledger()
        self._finished = ""
        self._asking = ""

    def run(self) -> None:
        """All steps in order.

        Raises:
            StepFailed: something was not as promised.
        """
        steps: list[tuple[str, Callable[[], None]]] = [
            ("Send a message and wait for the task", self._send),
            ("Stream: every frame has an id to resume from", self._stream),
            ("A question, answered on the same task", self._question),
            ("Cancel a running task", self._cancel),
            ("kill -9 the server, start it again", self._kill),
            ("The open question survived: answer it now", self._answer),
            ("kill -9 in the middle of a skill that resumes", self._resume),
            ("A signed webhook, in order, though the server dies in between", self._webhook),
            ("List the tasks", self._list),
        ]
        for number, (title, step) in enumerate(steps, 1):
            self._console.print(f"\n[bold cyan]{number}. {title}[/]")
            self._survive(step)

    def start(self) -> float:
        """Start the server, however often somebody kills it; gives the seconds that took."""
        for _ in range(PATIENCE):
            try:
                return self._demo.start()
            except Gone as gone:
                self._console.print(f"   [yellow]{gone}[/]")
        raise StepFailed("somebody kills the server each time it starts")

    def _survive(self, step: Callable[[], None]) -> None:
        for _ in range(PATIENCE):
            try:
                step()
                return
            except Gone as gone:
                self.revive(gone)
        raise StepFailed("somebody kills the server each time the tour takes this step")

    def revive(self, gone: Gone) -> None:
        """Say what happened, start the server again and hold it to what it has said."""
        for _ in range(PATIENCE):
            self._console.print(f"   [yellow]{gone}[/]")
            try:
                seconds = self.start()
                told = self._ledger.compare(self._demo)
            except Gone as again:
                gone = again
                continue
            self._console.print(f"   back after {seconds:.2f} s as process {self._demo.pid}; {told}")
            return
        raise StepFailed("somebody kills the server each time it is asked what it knows")

    def _show(self, task: dict[str, Any], more: str = "") -> None:
        self._ledger.note(task)
        state = state_of(task)
        self._console.print(f"   task {task['id']}  [{_COLOURS.get(state, 'white')}]{state}[/]  {more}")

    def _send(self) -> None:
        task = self._demo.send("echo Hello, agents.")
        _expect(task, "completed", "echo Hello, agents.")
        self._finished = task["id"]
        self._show(task, text_of(task))

    def _stream(self) -> None:
        count, last = 20, ""
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
        )
        written = ""
        with Progress(*columns, console=self._console) as progress:
            bar = progress.add_task("frames arrive", total=count)
            for frame_id, frame in self._demo.stream(f"count {count} 60"):
                written += _written(frame)
                progress.update(bar, completed=len(written.split()))
                last = frame_id or last
        if written.split() != [str(number) for number in range(1, count + 1)]:
            raise StepFailed(f"the stream said {written!r}")
        self._console.print(f"   {written.strip()}  (last event id {last})")

    def _question(self) -> None:
        task = self._demo.send("ask Which colour shall it be?")
        _expect(task, "input-required")
        self._show(task, task["status"]["message"]["parts"][0]["text"])
        answered = self._demo.send("Teal, please.", taskId=task["id"])
        _expect(answered, "completed", "Teal, please.")
        if answered["id"] != task["id"]:
            raise StepFailed("the answer started another task")
        self._show(answered, text_of(answered))

    def _cancel(self) -> None:
        task = self._demo.receipt("sleep 600")
        self._show(task)
        canceled = self._demo.call("CancelTask", {"id": task["id"]})
        _expect(canceled, "canceled")
        self._show(canceled)

    def _kill(self) -> None:
        asked = self._demo.send("ask Will you remember me?")
        _expect(asked, "input-required")
        self._ledger.note(asked)
        self._asking = asked["id"]
        self._die()
        task = self._demo.call("GetTask", {"id": self._finished})
        _expect(task, "completed", "echo Hello, agents.")
        self._show(task, "is still there: acknowledged means fsynced")

    def _die(self) -> None:
        self._console.print(f"   killing process {self._demo.pid}")
        self._demo.kill()
        seconds = self.start()
        self._console.print(f"   back after {seconds:.2f} s as process {self._demo.pid}")

    def _answer(self) -> None:
        task = self._demo.settled(self._asking)
        if state_of(task) == "failed":
            # Killed from outside just when it worked on the answer; its skill does not resume.
            self._show(task, task["status"]["message"]["parts"][0]["text"])
            task = self._demo.send("ask Shall I ask again?")
            self._asking = task["id"]
        if state_of(task) != "completed":
            _expect(task, "input-required")
            task = self._demo.send("Yes.", taskId=self._asking)
        _expect(task, "completed", "Yes.")
        self._show(task, "asked before the crash, answered after it")

    def _resume(self) -> None:
        task_id, last, text = "", "", ""
        for frame_id, frame in self._demo.stream(f"{STEPS} 80", metadata={"skill": "steps"}):
            task_id = task_id or frame["task"]["id"]
            last, text = frame_id, text + _written(frame)
            if len(text.split()) >= STEPS // 2:
                break
        self._console.print(f"   steps taken and recorded: {text}(last event id {last})")
        self._die()
        self._console.print(f"   the stream goes on after event {last}")
        before = len(text.split())
        for frame_id, frame in self._demo.resume(task_id, last):
            if int(frame_id) <= int(last):
                raise StepFailed(f"event {frame_id} came after event {last}")
            last, text = frame_id, text + _written(frame)
        taken = [word.partition("@")[::2] for word in text.split()]
        if [number for number, _ in taken] != [str(number) for number in range(1, STEPS + 1)]:
            raise StepFailed(f"the steps were {text!r}")
        task = self._demo.call("GetTask", {"id": task_id})
        _expect(task, "completed", text)
        self._console.print(f"   the rest: {' '.join(text.split()[before:])}")
        self._show(task, "no event was lost, no recorded step was taken again")

    def _webhook(self) -> None:
        token = f"{random_bits(128):032x}"
        hook = Hook(Receiver(tokens=[token], keys=self._demo.signing_keys()))
        try:
            push = {"url": hook.url, "token": token}
            task = self._demo.receipt(f"{STEPS} 60", push, metadata={"skill": "steps"})
            self._await(hook, "working")
            self._die()
            last = self._await(hook, "completed")
        finally:
            hook.close()
        if last.task_id != task["id"] or len(last.text.split()) != STEPS:
            raise StepFailed(f"the webhook was told {last.text!r} of task {last.task_id}")
        self._console.print(f"   the result came along: {last.text}")

    def _await(self, hook: Hook, state: str) -> Notification:
        for _ in range(round(READY_S / TICK_S)):
            try:
                told = hook.told.get(timeout=TICK_S)
            except queue.Empty:
                self._demo.alive()
                continue
            if told.state is None or plain(told.state) != state:
                raise StepFailed(f"the webhook was told {told.state}, not {state}")
            self._console.print(f"   told by a POST, token and signature good: [green]{state}[/]")
            return told
        raise StepFailed(f"the webhook was not told {state}")

    def _list(self) -> None:
        page = self._demo.call("ListTasks", {"pageSize": 10})
        table = Table("task", "state", "said", box=None, padding=(0, 2, 0, 1))
        for task in page["tasks"]:
            state = state_of(task)
            text = task["history"][0]["parts"][0]["text"]
            table.add_row(task["id"], f"[{_COLOURS.get(state, 'white')}]{state}[/]", text)
        if page["totalSize"] < 5:
            raise StepFailed(f"only {page['totalSize']} tasks are left")
        self._console.print(table)


def _expect(task: dict[str, Any], state: str, text: str = "") -> None:
    if state_of(task) != state or (text and text_of(task) != text):
        raise StepFailed(f"expected {state} {text!r}, got {state_of(task)} {text_of(task)!r}")


def _written(frame: dict[str, Any]) -> str:
    if "artifactUpdate" not in frame:
        return ""
    return frame["artifactUpdate"]["artifact"]["parts"][0]["text"]


def run(*, once: bool, port: int) -> int:
    """Walk through, then keep serving unless `once`; the exit code."""
    console = Console()
    console.print(
        Panel("[bold]Trunkline[/]: a task is an append-only log of events. Watch one survive.", expand=False)
    )
    with tempfile.TemporaryDirectory(prefix="trunkline-demo-") as directory:
        demo = Demo(Path(directory), free_port(port))
        tour = Tour(demo, console)
        try:
            seconds = tour.start()
            console.print(
                f"The demo agent answers at {demo.base} after {seconds:.2f} s, tasks in a SQLite file."
            )
            tour.run()
            console.print("\n[bold green]Everything held.[/]")
            if not once:
                _invite(console, demo, tour)
        except StepFailed as failed:
            console.print(f"[bold red]The tour stopped:[/] {failed}")
            return 1
        except KeyboardInterrupt:
            console.print("\nStopped.")
        finally:
            demo.stop()
    return 0


def _invite(console: Console, demo: Demo, tour: Tour) -> None:
    console.print(f"\nIt keeps serving at {demo.base}. Try, in another terminal:")
    for language, lines in (("bash", CURL), ("python", PYTHON), ("javascript", JAVASCRIPT)):
        console.print(
            Syntax(lines.format(base=demo.base), language, background_color="default", word_wrap=True)
        )
    console.print(f"Kill it if you like (process {demo.pid}); Ctrl-C ends it.")
    while True:
        try:
            demo.watch()
        except Gone as gone:
            tour.revive(gone)
