"""The tour: starts the demo agent and shows, in the terminal, what it does and what it survives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table

from trunkline.demo.lines import CURL, JAVASCRIPT, PYTHON
from trunkline.demo.remote import Demo, StepFailed, free_port, state_of, text_of

_COLOURS = {"completed": "green", "canceled": "yellow", "failed": "red", "input-required": "magenta"}


class Tour:
    """The steps, each checked; the first that does not hold ends the tour."""

    def __init__(self, demo: Demo, console: Console) -> None:
        self._demo = demo
        self._console = console
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
            ("List the tasks", self._list),
        ]
        for number, (title, step) in enumerate(steps, 1):
            self._console.print(f"\n[bold cyan]{number}. {title}[/]")
            step()

    def _show(self, task: dict[str, Any], more: str = "") -> None:
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
                if "artifactUpdate" in frame:
                    written += frame["artifactUpdate"]["artifact"]["parts"][0]["text"]
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
        self._asking = self._demo.send("ask Will you remember me?")["id"]
        self._console.print(f"   killing process {self._demo.pid}")
        self._demo.kill()
        seconds = self._demo.start()
        self._console.print(f"   back after {seconds:.2f} s as process {self._demo.pid}")
        task = self._demo.call("GetTask", {"id": self._finished})
        _expect(task, "completed", "echo Hello, agents.")
        self._show(task, "is still there: acknowledged means fsynced")

    def _answer(self) -> None:
        waiting = self._demo.call("GetTask", {"id": self._asking})
        _expect(waiting, "input-required")
        task = self._demo.send("Yes.", taskId=self._asking)
        _expect(task, "completed", "Yes.")
        self._show(task, "asked before the crash, answered after it")

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


def run(*, once: bool, port: int) -> int:
    """Walk through, then keep serving unless `once`; the exit code."""
    console = Console()
    console.print(
        Panel("[bold]Trunkline[/]: a task is an append-only log of events. Watch one survive.", expand=False)
    )
    with tempfile.TemporaryDirectory(prefix="trunkline-demo-") as directory:
        demo = Demo(Path(directory), free_port(port))
        try:
            seconds = demo.start()
            console.print(
                f"The demo agent answers at {demo.base} after {seconds:.2f} s, tasks in a SQLite file."
            )
            Tour(demo, console).run()
            console.print("\n[bold green]Everything held.[/]")
            if not once:
                _invite(console, demo)
        except StepFailed as failed:
            console.print(f"[bold red]The tour stopped:[/] {failed}")
            return 1
        except KeyboardInterrupt:
            console.print("\nStopped.")
        finally:
            demo.stop()
    return 0


def _invite(console: Console, demo: Demo) -> None:
    console.print(f"\nIt keeps serving at {demo.base}. Try, in another terminal:")
    for language, lines in (("bash", CURL), ("python", PYTHON), ("javascript", JAVASCRIPT)):
        console.print(
            Syntax(lines.format(base=demo.base), language, background_color="default", word_wrap=True)
        )
    console.print("Ctrl-C ends it.")
    demo.wait()
