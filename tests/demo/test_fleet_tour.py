"""The tour of a fleet leaves nothing behind, and says so when something does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.demo.test_tour import await_end_of_all
from tests.harness import free_port
from trunkline.demo.fleet_tour import FleetTour, HubServer, show_fleet
from trunkline.demo.tour_process import DemoServer, StepFailed


class _Impatient(Console):
    """Somebody who presses Ctrl-C when a step begins."""

    def print(self, *objects: Any, **more: Any) -> None:
        super().print(*objects, **more)
        if "2. Plan work" in str(objects):
            raise KeyboardInterrupt


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = DemoServer(tmp_path, free_port())
    try:
        with pytest.raises(KeyboardInterrupt):
            show_fleet(tmp_path, demo, _Impatient(quiet=True), 1)
    finally:
        demo.stop()
    assert "hub.started" in (tmp_path / "hub.log").read_text()
    await_end_of_all(tmp_path)


class _Quiet(HubServer):
    """A hub that takes part in nothing but answers what it was told to."""

    def __init__(self, directory: Path, answers: dict[str, Any]) -> None:
        super().__init__(directory, free_port(), "http://127.0.0.1:1")
        self._answers = answers

    def prepare(self) -> None:
        pass

    @property
    def runs(self) -> bool:
        return True

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        del method, body
        return self._answers[path]


def test_an_agent_that_is_not_found_ends_the_tour(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = [
        {"name": name, "state": "ready", "skills": []} for name in ("approver", "writer", "stepper")
    ]
    hub = _Quiet(tmp_path, {"/agents": {"items": found}})
    with pytest.raises(StepFailed, match=r"the hub has found \['approver', 'writer', 'stepper'\]"):
        FleetTour(hub, hub, Console(quiet=True)).run(1)
