"""The tour: starts the demo agent and shows, in the terminal, what it does and what it survives."""

from __future__ import annotations

import asyncio
import queue
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table

from trunkline.client.result import Result, text_of
from trunkline.clock import random_bits
from trunkline.demo.fleet_tour import show_fleet
from trunkline.demo.tour_process import (
    ENDING_S,
    READY_S,
    Acknowledged,
    DemoServer,
    Gone,
    StepFailed,
    describe,
    free_port,
    outlive,
)
from trunkline.doctor.check import CheckOutcome
from trunkline.doctor.run import examine
from trunkline.errors import Refused
from trunkline.webhook import Notification, Receiver
from trunkline.webhook.listener import IncomingWebhook, WebhookListener
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import PushConfig, TaskState

# What can be pasted to call the agent, with the language of each.
SNIPPETS: list[tuple[str, str]] = re.findall(
    r"^```(\w+)\n(.*?)^```$",
    Path(__file__).with_name("snippets.txt").read_text("utf-8"),
    re.DOTALL | re.MULTILINE,
)
STEPS = 8
# Tasks that the steps before the list make, at least.
MADE = 7
TICK_S = 0.1
_COMPLETED, _ASKS = TaskState.COMPLETED, TaskState.INPUT_REQUIRED
_COLOURS = {_COMPLETED: "green", TaskState.CANCELED: "yellow", TaskState.FAILED: "red", _ASKS: "magenta"}


class TourWebhook:
    """A webhook endpoint on loopback; every notification with a good token and signature is in `received`."""

    def __init__(self, receiver: Receiver) -> None:
        self.received: queue.Queue[Notification] = queue.Queue()
        self._receiver = receiver
        self._listener = WebhookListener(self._take)
        self.url = f"http://127.0.0.1:{self._listener.port}/hook"

    def _take(self, webhook: IncomingWebhook) -> int:
        """Take a notification, once however often it comes."""
        try:
            notification = self._receiver.receive(webhook.headers, webhook.body)
        except Refused:
            return 401
        if not notification.repeated:
            self.received.put(notification)
        return 200

    def close(self) -> None:
        """Stop the listener."""
        self._listener.close()


class Tour:
    """The steps, each checked; the first that does not hold ends the tour.

    Whoever kills the server meanwhile becomes part of it: it is started again, and asked what it still knows.
    """

    def __init__(self, demo: DemoServer, console: Console) -> None:
        self._demo = demo
        self._console = console
        self._acknowledged = Acknowledged()
        self._finished = ""
        self._asking = ""

    def run(self) -> int:
        """All steps in order; gives how many.

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
            ("Ask the doctor", self._examine),
        ]
        for number, (title, step) in enumerate(steps, 1):
            self._console.print(f"\n[bold cyan]{number}. {title}[/]")
            self._survive(step)
        return len(steps)

    def start(self) -> float:
        """Start the server, however often somebody kills it; gives the seconds that took."""
        return outlive(self._demo.start, self._tell, "somebody kills the server each time it starts")

    def _survive(self, step: Callable[[], None]) -> None:
        def take() -> None:
            with self._demo.checked():
                step()

        outlive(take, self.revive, "somebody kills the server each time the tour takes this step")

    def revive(self, gone: Gone) -> None:
        """Say what happened, start the server again and hold it to what it has said."""

        def compare() -> tuple[float, str]:
            seconds = self.start()
            with self._demo.checked():
                return seconds, self._acknowledged.compare(self._demo.client)

        self._tell(gone)
        given_up = "somebody kills the server each time it is asked what it knows"
        seconds, told = outlive(compare, self._tell, given_up)
        self._console.print(f"   back after {seconds:.2f} s as process {self._demo.pid}; {told}")

    def _tell(self, gone: Gone) -> None:
        self._console.print(f"   [yellow]{gone}[/]")

    def _show(self, result: Result, more: str = "") -> None:
        self._acknowledged.note(result)
        self._console.print(f"   task {result.task_id}  {_coloured(result.state)}  {more}")

    def _send(self) -> None:
        result = self._demo.client.send("echo Hello, agents.")
        _expect(result, _COMPLETED, "echo Hello, agents.")
        self._finished = result.task_id
        self._show(result, result.text)

    def _stream(self) -> None:
        count, last, written = 20, "", ""
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
        )
        with (
            Progress(*columns, console=self._console) as progress,
            self._demo.client.stream(f"count {count} 60") as stream,
        ):
            bar = progress.add_task("frames arrive", total=count)
            for update in stream:
                written += update.text
                progress.update(bar, completed=len(written.split()))
                last = update.id or last
        if written.split() != [str(number) for number in range(1, count + 1)]:
            raise StepFailed(f"the stream said {written!r}")
        self._console.print(f"   {written.strip()}  (last event id {last})")

    def _question(self) -> None:
        asked = self._demo.client.send("ask Which colour shall it be?")
        _expect(asked, _ASKS)
        self._show(asked, asked.question)
        answered = self._demo.client.send("Teal, please.", task_id=asked.task_id)
        _expect(answered, _COMPLETED, "Teal, please.")
        if answered.task_id != asked.task_id:
            raise StepFailed("the answer started another task")
        self._show(answered, answered.text)

    def _cancel(self) -> None:
        receipt = self._demo.client.send("sleep 600", wait=False)
        self._show(receipt)
        canceled = self._demo.client.cancel(receipt.task_id)
        _expect(canceled, TaskState.CANCELED)
        self._show(canceled)

    def _kill(self) -> None:
        asked = self._demo.client.send("ask Will you remember me?")
        _expect(asked, _ASKS)
        self._acknowledged.note(asked)
        self._asking = asked.task_id
        self._die()
        finished = self._demo.client.get(self._finished)
        _expect(finished, _COMPLETED, "echo Hello, agents.")
        self._show(finished, "is still there: acknowledged means fsynced")

    def _die(self) -> None:
        self._console.print(f"   killing process {self._demo.pid}")
        self._demo.kill()
        seconds = self.start()
        self._console.print(f"   back after {seconds:.2f} s as process {self._demo.pid}")

    def _answer(self) -> None:
        result = self._demo.client.wait(self._asking)
        if result.state is TaskState.FAILED:
            # Killed from outside just when it worked on the answer; its skill does not resume.
            self._show(result, result.text)
            result = self._demo.client.send("ask Shall I ask again?")
            self._asking = result.task_id
        if result.state is not _COMPLETED:
            _expect(result, _ASKS)
            result = self._demo.client.send("Yes.", task_id=self._asking)
        _expect(result, _COMPLETED, "Yes.")
        self._show(result, "asked before the crash, answered after it")

    def _resume(self) -> None:
        text, before, last = "", "", 0
        with self._demo.client.stream(f"{STEPS} 80", skill="steps") as stream:
            for update in stream:
                place = int(update.id or 0)
                # A snapshot in the middle would mean that the events before it were missed.
                if place <= last or (last and update.kind == "task"):
                    raise StepFailed(f"event {place}, a {update.kind}, came after event {last}")
                last, text = place, text + update.text
                if not before and len(text.split()) >= STEPS // 2:
                    before = text
                    self._console.print(f"   steps taken and recorded: {text}(last event id {last})")
                    self._die()
                    self._console.print(
                        f"   the same stream is read on: its client reconnects with Last-Event-ID {last}"
                    )
            result = stream.finish()
        if [word.partition("@")[0] for word in text.split()] != [str(1 + place) for place in range(STEPS)]:
            raise StepFailed(f"the steps were {text!r}")
        _expect(result, _COMPLETED, text)
        _expect(self._demo.client.get(result.task_id), _COMPLETED, text)
        self._console.print(f"   the rest: {text.removeprefix(before).strip()}")
        self._show(result, "no event was lost, none came twice, no recorded step was taken again")

    def _webhook(self) -> None:
        token = f"{random_bits(128):032x}"
        hook = TourWebhook(Receiver(tokens=[token], keys=self._demo.signing_keys()))
        try:
            push = PushConfig(hook.url, token=token)
            receipt = self._demo.client.send(f"{STEPS} 60", skill="steps", push=push, wait=False)
            self._await(hook, TaskState.WORKING)
            self._die()
            last = self._await(hook, _COMPLETED)
        finally:
            hook.close()
        if last.task_id != receipt.task_id or len(last.text.split()) != STEPS:
            raise StepFailed(f"the webhook was told {last.text!r} of task {last.task_id}")
        self._console.print(f"   the result came along: {last.text}")

    def _await(self, hook: TourWebhook, state: TaskState) -> Notification:
        for _ in range(round(READY_S / TICK_S)):
            try:
                told = hook.received.get(timeout=TICK_S)
            except queue.Empty:
                self._demo.check_alive()
                continue
            if told.state is not state:
                raise StepFailed(f"the webhook was told {told.state}, not {state}")
            self._console.print(f"   told by a POST, token and signature good: {_coloured(state)}")
            return told
        raise StepFailed(f"the webhook was not told {plain_state(state)}")

    def _list(self) -> None:
        page = self._demo.client.list(page_size=10)
        table = Table("task", "state", "said", box=None, padding=(0, 2, 0, 1))
        for task in page.tasks:
            table.add_row(task.id, _coloured(task.status.state), text_of(task.history[0]))
        if page.total_size < MADE:
            raise StepFailed(f"only {page.total_size} tasks are left")
        self._console.print(table)

    def _examine(self) -> None:
        report = asyncio.run(examine(self._demo.base))
        passed = sum(one.outcome is CheckOutcome.PASSED for one in report.findings)
        odd = [one for one in report.findings if one.outcome in (CheckOutcome.FAILED, CheckOutcome.UNKNOWN)]
        if odd or not passed:
            self._demo.check_alive(ENDING_S)
            found = "; ".join(f"{one.check}: {one.seen}" for one in odd)
            raise StepFailed(f"the doctor found {found or report.nothing}")
        self._console.print(
            f"   [green]{passed} checks passed[/] in {report.took_s:.1f} s over {len(report.interfaces)} "
            "interfaces, nothing was found: trunkline doctor examines any agent so"
        )


def _expect(result: Result, state: TaskState, text: str = "") -> None:
    if result.state is not state or (text and result.text != text):
        raise StepFailed(f"expected {plain_state(state)} {text!r}, got {describe(result)}")


def _coloured(state: TaskState) -> str:
    return f"[{_COLOURS.get(state, 'white')}]{plain_state(state)}[/]"


def run(*, once: bool, port: int) -> int:
    """Walk through, then keep serving unless `once`; the exit code."""
    console = Console()
    console.print(
        Panel("[bold]Trunkline[/]: a task is an append-only log of events. Watch one survive.", expand=False)
    )
    with tempfile.TemporaryDirectory(prefix="trunkline-demo-") as directory, ExitStack() as stack:
        demo = DemoServer(Path(directory), free_port(port))
        stack.callback(demo.stop)
        tour = Tour(demo, console)
        try:
            seconds = tour.start()
            console.print(
                f"The demo agent answers at {demo.base} after {seconds:.2f} s, tasks in a SQLite file."
            )
            taken = tour.run()
            show_fleet(Path(directory), demo, console, taken + 1)
            console.print("\n[bold green]Everything held.[/]")
            if not once:
                _invite(console, demo, tour)
        except StepFailed as failed:
            console.print(f"[bold red]The tour stopped:[/] {failed}")
            return 1
        except KeyboardInterrupt:
            console.print("\nStopped.")
    return 0


def _invite(console: Console, demo: DemoServer, tour: Tour) -> None:
    console.print(f"\nIt keeps serving at {demo.base}. Try, in another terminal:")
    # Where the environment is not active, as after `make demo`, the command is named as it was called.
    called = sys.argv[0] if Path(sys.argv[0]).name == "trunkline" else "trunkline"
    program = "trunkline" if shutil.which("trunkline") else called
    for language, snippet in SNIPPETS:
        text = snippet.replace("{base}", demo.base).replace("{trunkline}", program)
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    console.print(f"A fleet: {program} hub init fleet && {program} hub fleet --port {demo.port + 1}")
    console.print(f"Kill it if you like (process {demo.pid}); Ctrl-C ends it.")
    while True:
        try:
            demo.check_alive(None)
        except Gone as gone:
            tour.revive(gone)
