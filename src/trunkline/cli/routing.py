"""`trunkline dispatch`, `route …` and `a2a …`: work for the agents of a hub, and who does it and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trunkline.cli.admin import ask, settings_for
from trunkline.cli.console import one_line
from trunkline.errors import Misuse
from trunkline.fleet.routing.a2a_tool import perform_line
from trunkline.log.ids import is_task_id

DISPATCH, ROUTE, TASKS = "/api/dispatch", "/api/route", "/api/tasks"
EVERY_S = 0.5
_AT_WORK = ("submitted", "working")


def dispatch(
    url: str | None,
    tenant: str,
    form: Mapping[str, Any],
    wait_s: float,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Have work done and print its tasks, at rest or after the wait; 1 if one of them failed.

    Raises:
        Misuse: no hub has the store, or it refused the work.
    """
    settings = settings_for(url)
    given = {name: value for name, value in form.items() if value}
    tasks: list[dict[str, Any]] = ask(settings, "POST", DISPATCH, given, query={"tenant": tenant})["tasks"]
    left = wait_s
    while left > 0 and any([one["state"] in _AT_WORK for one in tasks]):
        sleep(min(EVERY_S, left))
        left -= EVERY_S
        tasks = [ask(settings, "GET", f"{TASKS}/{one['taskId']}", query={"tenant": tenant}) for one in tasks]
    if as_json:
        print(msgspec.json.encode({"tasks": tasks}).decode())
    else:
        for one in tasks:
            said = one_line(one.get("error") or one.get("text") or "")
            print(f"{one['taskId']}  {one['agent']}  {one['state']}  {said}".rstrip())
    return int(any([one["state"] in ("failed", "rejected") for one in tasks]))


def perform_a2a(url: str | None, tenant: str, line: str) -> int:
    """Perform a line of `/a2a` on the hub of a store and print its result; 1 if it is an error."""
    settings = settings_for(url)

    async def asked(method: str, path: str, body: dict[str, Any] | None) -> Any:
        # It has a loop of its own.
        return await asyncio.to_thread(ask, settings, method, f"/api{path}", body, {"tenant": tenant})

    said = asyncio.run(perform_line(line, asked))
    print(said)
    return int("\nERR: " in said)


def explain(url: str | None, tenant: str, task_id: str, query: Mapping[str, str], *, as_json: bool) -> None:
    """Print who does a task and why; or who would be chosen for what is asked for.

    Raises:
        Misuse: it is no task, or no hub has the store.
    """
    if task_id and not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the id of a task")
    path = f"{TASKS}/{task_id}/route" if task_id else ROUTE
    found = ask(settings_for(url), "GET", path, query={**({} if task_id else query), "tenant": tenant})
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print(f"{found['refusal']}: {found['reason']}" if found.get("refusal") else found["reason"])
    for one in found["candidates"]:
        parts = "  ".join([f"{name} {value:.4g}" for name, value in one["parts"].items()])
        excluded = one.get("excluded")
        print(f"  {one['agent']}  {one['score']:.3f}  {f'not now: {excluded}' if excluded else parts}")
