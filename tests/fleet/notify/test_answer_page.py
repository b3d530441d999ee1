"""A question answered by a link: by whom, once, and by nothing that only looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from msgspec.structs import replace

from tests.fleet.office import NORTH, Office, office
from trunkline.auth.vault import Vault
from trunkline.clock import now_ms
from trunkline.errors import InvalidParams
from trunkline.fleet.inbox import InboxItem, inbox_of
from trunkline.fleet.notify.answer_page import AnswerPage, answer_mount, question_page
from trunkline.fleet.notify.links import LASTS_MS, PREFIX, AnswerLinks

BASE = "http://localhost"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Linked:
    """An office whose questions have links."""

    def __init__(self, at: Office) -> None:
        host = at.application.host
        self.at = at
        self.later_ms = 0
        self.links = AnswerLinks(Vault(b"k" * 32), lambda: BASE, lambda: now_ms() + self.later_ms)
        self.closed: set[str] = set()
        host.mounts.add(answer_mount(AnswerPage(inbox_of(host.runner), self.links, self.closed)))
        self._client = httpx2.AsyncClient(transport=httpx2.ASGITransport(at.application), base_url=BASE)

    async def asked(self, word: str = "ask") -> tuple[str, str]:
        """A task that asks, and the link for somebody to answer it."""
        task = (await self.at.send("alice", word))["id"]
        item = (await self.at.get("carol", "/api/inbox"))["items"][0]
        assert item["taskId"] == task
        return task, self.links.make(NORTH, task, item["question"], "ada")

    async def get(self, link: str, method: str = "GET") -> httpx2.Response:
        return await self._client.request(method, link)

    async def post(self, link: str, origin: str = BASE, **fields: str) -> httpx2.Response:
        return await self._client.post(link, content=urlencode(fields), headers={**FORM, "Origin": origin})


def linked(work: Callable[[Linked], Awaitable[Any]]) -> None:
    office(lambda at: work(Linked(at)))


def test_a_link_answers_once_in_the_name_of_its_addressee() -> None:
    async def work(at: Linked) -> None:
        task, link = await at.asked()
        for method in ("GET", "HEAD", "GET"):
            seen = await at.get(link, method)
            assert seen.status_code == 200
        # Looking at it has answered nothing.
        assert "Which one?" in seen.text and "desk" in seen.text
        assert (await at.at.get("root", f"/api/tasks/{task}"))["state"] == "input-required"
        for name, value in (
            ("cache-control", "no-store"), ("referrer-policy", "same-origin"), ("x-robots-tag", "noindex"),
            ("x-content-type-options", "nosniff"),
        ):  # fmt: skip
            assert seen.headers[name] == value
        assert "frame-ancestors 'none'" in seen.headers["content-security-policy"]
        answered = await at.post(link, decision="respond", text=" the red one ")
        assert (answered.status_code, "Thank you" in answered.text) == (200, True)
        assert (await at.at.until(task, "completed"))["text"] == "heard the red one"
        (closed,) = (await at.at.get("carol", "/api/inbox?state=closed"))["items"]
        assert (closed["answeredBy"], closed["outcome"]) == ("ada", "answered")
        again = await at.post(link, decision="respond", text="the blue one")
        assert (again.status_code, (await at.get(link)).status_code) == (409, 410)
        assert "closed" in again.text

    linked(work)


def test_what_does_not_fit_is_said_on_the_page_and_may_be_sent_again() -> None:
    async def work(at: Linked) -> None:
        task, link = await at.asked("amount")
        assert "What it must be" in (await at.get(link)).text
        wrong: list[tuple[dict[str, str], str]] = [
            ({"decision": "edit", "data": '{"amount": "many"}'}, "amount"),
            ({"decision": "edit", "data": "{"}, "no JSON"),
            ({"decision": "accept"}, "nothing is proposed"),
            ({"decision": "dance"}, "choose one of the buttons"),
            ({}, "choose one of the buttons"),
        ]
        for fields, word in wrong:
            refused = await at.post(link, BASE, **fields)
            assert (refused.status_code, word in refused.text) == (400, True), refused.text
        assert (await at.post(link, BASE, **{str(n): "" for n in range(20)})).status_code == 400
        assert (await at.post(link, decision="edit", data='{"amount": 7}')).status_code == 200
        assert "7" in (await at.at.until(task, "completed"))["text"]

    linked(work)


def test_it_can_be_rejected_with_a_reason() -> None:
    async def work(at: Linked) -> None:
        task, link = await at.asked()
        assert (await at.post(link, decision="reject", reason="not today", text="ignored")).status_code == 200
        await at.at.until(task, "failed")
        (closed,) = (await at.at.get("carol", "/api/inbox?state=closed"))["items"]
        assert (closed["outcome"], closed["answeredBy"]) == ("rejected", "ada")

    linked(work)


def test_a_link_that_is_over_or_none_of_ours_answers_nothing() -> None:
    async def work(at: Linked) -> None:
        task, link = await at.asked()
        foreign = AnswerLinks(Vault(b"x" * 32), lambda: BASE, now_ms).make(NORTH, task, "q", "eve")
        for wrong in (foreign, f"{BASE}{PREFIX}/nonsense", f"{link[:-3]}AAA", f"{BASE}{PREFIX}/{'A' * 5000}"):
            assert (await at.post(wrong, decision="respond", text="x")).status_code == 404
        other = at.links.make(NORTH, task, "another question", "ada")
        assert (await at.post(other, decision="respond", text="x")).status_code == 409
        # A page elsewhere cannot have it sent from somebody's browser.
        assert (await at.post(link, "https://evil.example", decision="respond", text="x")).status_code == 403
        at.closed.add(NORTH)
        assert (await at.post(link, decision="respond", text="x")).status_code == 404
        at.closed.clear()
        at.later_ms = LASTS_MS + 1000
        assert (await at.post(link, decision="respond", text="x")).status_code == 410
        assert (await at.at.get("root", f"/api/tasks/{task}"))["state"] == "input-required"

    linked(work)


def test_what_an_agent_says_is_text_on_the_page() -> None:
    evil = "<script>alert(1)</script>\"'"
    item = InboxItem(
        task_id="t", context_id="c", agent=evil, skill="", principal="p", state="input-required", question="q", text=evil, asked_at=evil,
        choices=[evil, "yes"], deadline=evil, proposal={"a": evil},
    )  # fmt: skip
    for one in (item, replace(item, schema={"a": evil})):
        page = question_page(one, InvalidParams(evil))
        assert "<script" not in page and page.count("alert(1)") >= 5


def test_the_page_of_a_login_says_so_and_takes_word_that_it_is_done() -> None:
    async def work(at: Linked) -> None:
        task, link = await at.asked("login")
        page = (await at.get(link)).text
        assert "wants somebody to log in" in page and "https://login.example" in page and "<a " not in page
        assert (await at.post(link, decision="respond", text="done")).status_code == 200
        assert (await at.at.until(task, "completed"))["text"] == "heard done"

    linked(work)


@pytest.mark.parametrize(("vault", "base"), [(None, BASE), (Vault(b"k" * 32), "")])
def test_without_a_key_or_an_address_there_are_no_links(vault: Vault | None, base: str) -> None:
    links = AnswerLinks(vault, lambda: base, now_ms)
    assert links.make(NORTH, "t", "q", "ada") == ""
    assert links.read("x") is None
