"""A catalogue over HTTP: cards of agents are fetched, entries are changed by the API, agents announce themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.catalogue.cards import CardServer, card
from tests.fleet.office import NORTH, Office, office
from trunkline.auth.vault import Vault
from trunkline.client import discovery as client_discovery
from trunkline.fleet.catalogue import catalogue, discovery, files, service
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.documents import KeptEntry
from trunkline.fleet.catalogue.service import CatalogueService
from trunkline.hub.hub import variable_of
from trunkline.net.egress import Egress
from trunkline.store.base import Store
from trunkline.wire.peer_card import PeerCard

NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"
CANARY = "canary-of-an-agent"
TENANTS = "    tenants: [north]\n"


class Fleet:
    """A host with a catalogue, its callers, and agents that have cards."""

    def __init__(self, at: Office, cards: CardServer, made: CatalogueService, folder: Path) -> None:
        self.at = at
        self.cards = cards
        self.service = made
        self.folder = folder
        self.clock = 0

    async def agent(self, name: str, who: str = "alice") -> Any:
        return await self.at.get(who, f"/api/agents/{name}")

    async def until(self, name: str, **wanted: Any) -> Any:
        return await self.eventually(name, lambda one: {**one, **wanted} == one)

    async def eventually(self, name: str, holds: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(30):
            while not holds(found := await self.agent(name)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found

    async def do(self, method: str, path: str, body: Any = None, who: str = "root") -> tuple[int, Any]:
        answer = await self.at.ask(who, method, f"/api/{path}", body)
        assert CANARY not in answer.text
        return answer.status_code, answer.json()


def fleet(
    folder: Path,
    text: Callable[[str], str],
    work: Callable[[Fleet], Awaitable[None]],
    *,
    loopback: bool = True,
    prepare: Callable[[CardServer], None] = lambda cards: None,
) -> None:
    async def main(at: Office) -> None:
        async with CardServer() as cards:
            prepare(cards)
            (folder / "agents.yaml").write_text(text(cards.url))
            shift: list[Fleet] = []
            made = made_of(at.store, lambda: 1_700_000_000_000 + (shift[0].clock if shift else 0), loopback)
            at.application.host.api.add(made.routes())
            read = files.CatalogueFiles(folder, variable_of({}), made.catalogue.take_files)
            read.start()
            await made.start()
            running = asyncio.gather(made.run(), read.watch())
            found = Fleet(at, cards, made, folder)
            shift.append(found)
            try:
                await work(found)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    office(main)


def made_of(store: Store, now: Callable[[], int], loopback: bool) -> CatalogueService:
    egress = Egress(loopback=loopback)
    return CatalogueService(
        Catalogue(now),
        store.docs,
        now,
        agent_egress=lambda *_: egress,
        probe_egress=lambda _: egress,
        vault=Vault(b"k" * 32),
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WATCH_S", 0.02)
    monkeypatch.setattr(service, "SWEEP_S", 0.02)


def test_hb_01_to_hb_05_cards_are_found_followed_and_asked_for_with_auth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", CANARY)
    monkeypatch.delenv("NOT_SET", raising=False)

    def text(url: str) -> str:
        return (
            "agents:\n"
            f"  - name: legacy\n    url: {url}/legacy/a2a\n    apiKeyEnv: THE_KEY\n    headers: {{x-more: yes}}\n"
            f"{TENANTS}    skills: [always]\n"
            f"  - name: bearer\n    url: {url}/bearer/a2a\n    auth: {{scheme: bearer, credentialsEnv: THE_KEY}}\n"
            f"{TENANTS}"
            f"  - name: bare\n    url: {url}/bare/a2a\n    apiKeyEnv: NOT_SET\n{TENANTS}"
            f"  - name: nowhere\n    url: {url}/${{NOT_SET}}/a2a\n{TENANTS}"
        )

    def prepare(cards: CardServer) -> None:
        cards.cards["/legacy" + OLD] = card("legacy", "draft")
        cards.cards["/bearer" + NEW] = card("bearer", "edit", streaming=True, pushNotifications=True)

    async def work(at: Fleet) -> None:
        legacy = await at.until("legacy", state="ready")
        assert [(one["id"], one["source"]) for one in legacy["skills"]] == [
            ("always", "file"),
            ("draft", "card"),
        ]
        assert (legacy["streaming"], legacy["push"], legacy["breaker"]) == (False, False, "closed")
        assert "the address of its entry is called all the same" in legacy["reason"]
        assert legacy["health"]["total"] == 0 and legacy["cardAt"].endswith("Z")
        bearer = await at.until("bearer", state="ready")
        assert (bearer["streaming"], bearer["push"], bearer["versions"]) == (True, True, ["0.3"])
        seen = dict(at.cards.asked)
        assert seen["/legacy" + OLD]["x-api-key"] == CANARY and seen["/legacy" + OLD]["x-more"] == "yes"
        assert seen["/bearer" + NEW]["authorization"] == f"Bearer {CANARY}"
        # HB-04, HB-05: what lacks a variable is seen, and never dialled.
        listed = (await at.at.get("all", "/api/agents?limit=3&tenant=north"))["items"]
        assert [(one["name"], one["state"]) for one in listed] == [
            ("bare", "invalid"), ("bearer", "ready"), ("legacy", "ready"),
        ]  # fmt: skip
        assert listed[0]["reason"].startswith("agents.yaml, line ") and "NOT_SET" in listed[0]["reason"]
        rest = await at.at.get("alice", "/api/agents?after=legacy")
        assert [one["name"] for one in rest["items"]] == ["nowhere"] and rest["next"] is None
        assert not at.cards.paths("bare") and not at.cards.paths("NOT_SET")
        # HB-02, HB-03: one refresh later.
        at.cards.cards["/legacy" + OLD] = card("legacy", "other", streaming=True)
        status, legacy = await at.do("POST", "agents/legacy/refresh")
        assert status == 200 and legacy["streaming"]
        assert [one["id"] for one in legacy["skills"]] == ["always", "other"]
        asked = len(at.cards.paths("bearer"))
        await at.do("POST", "agents/bearer/refresh")
        assert "if-none-match" in dict(at.cards.asked)["/bearer" + NEW]
        assert len(at.cards.paths("bearer")) == asked + 1
        # HB-37: who calls an agent has its card already.
        entry = at.service.catalogue.find("north", "bearer")
        assert entry is not None and entry.entry.peer is not None
        client = at.service.clients.of("bearer", entry.entry.peer)
        assert (await client.card()).streaming and len(at.cards.paths("bearer")) == asked + 1
        assert at.service.clients.of("bearer", entry.entry.peer) is client
        # The reason of a failure is kept, and so is what was known.
        del at.cards.cards["/legacy" + OLD]
        _, legacy = await at.do("POST", "agents/legacy/refresh?tenant=north", who="all")
        assert legacy["state"] == "unreachable" and "HTTP 404" in legacy["reason"]
        assert [one["id"] for one in legacy["skills"]] == ["always", "other"]
        log = (await at.eventually("legacy", lambda one: "unreachable" in str(one["log"][-1:])))["log"]
        assert log[0]["kind"] == "added" and log[-1]["about"]["state"] == ["ready", "unreachable"]
        # A file that changes, by content.
        path = at.folder / "agents.yaml"
        path.write_text(path.read_text().replace("skills: [always]", "skills: [evermor]"))
        await at.eventually("legacy", lambda one: "evermor" in [skill["id"] for skill in one["skills"]])

    fleet(tmp_path, text, work, prepare=prepare)


def test_entry_whose_path_has_no_card_does_not_become_another_agent(tmp_path: Path) -> None:
    def text(url: str) -> str:
        # The entry of the first seed: `${QUINN_BASE_URL}/a2a`, with its card at the base.
        return "agents:\n" + "".join(
            f"  - name: {name}\n    url: {url}{path}\n{TENANTS}"
            for name, path in (("quinn", "/a2a"), ("wrong", "/v1/a2a/agents/Quinn"))
        )

    def prepare(cards: CardServer) -> None:
        cards.cards[NEW] = card("quinn", "pr_review")

    async def work(at: Fleet) -> None:
        assert (await at.until("quinn", state="ready"))["skills"][0]["id"] == "pr_review"
        await at.until("wrong", state="unreachable")
        wrong = await at.at.get("all", "/api/agents/wrong?tenant=north")
        assert "no agent has the path '/v1/a2a/agents/Quinn'" in wrong["reason"]
        assert not wrong["skills"]
        probed = (await at.do("POST", "a2a/probe", {"url": f"{at.cards.url}/wrong"}))[1]
        assert probed["reachable"] and not probed["skills"]
        assert "is the card of 'quinn'" in probed["error"]

    fleet(tmp_path, text, work, prepare=prepare)


def test_the_api_changes_the_catalogue(tmp_path: Path) -> None:
    def prepare(cards: CardServer) -> None:
        cards.cards["/a" + NEW] = card("a", "draft")

    async def work(at: Fleet) -> None:
        url = f"{at.cards.url}/a/a2a"
        entry = {"name": "mine", "url": url, "auth": {"scheme": "bearer", "credentials": CANARY}}
        assert (await at.do("POST", "agents", entry, who="alice"))[0] == 403
        status, made = await at.do("POST", "agents", {**entry, "skills": ["own"]})
        assert (status, made["owner"], made["state"]) == (200, "api", "discovering"), made
        mine = await at.until("mine", state="ready")
        assert [(one["id"], one["source"]) for one in mine["skills"]] == [("own", "api"), ("draft", "card")]
        assert dict(at.cards.asked)["/a" + NEW]["authorization"] == f"Bearer {CANARY}"
        for doc in await at.at.store.docs.list_all("catalogue"):
            assert CANARY.encode() not in doc.body
        assert (await at.at.ask("stranger", "GET", "/api/agents/mine")).status_code == 404
        # Names and owners.
        status, problem = await at.do("POST", "agents", entry)
        assert (status, problem["code"], problem["field"]) == (409, "NAME_TAKEN", "name")
        for method, path, body in (
            ("POST", "agents", {**entry, "name": "filed"}),
            ("PUT", "agents/filed", entry),
            ("DELETE", "agents/filed", None),
        ):
            assert (await at.do(method, path, body))[0] == 409, path
        for method in ("PUT", "DELETE"):
            assert (await at.do(method, "agents/nobody", {} if method == "PUT" else None))[0] == 404
        # What only files may say.
        for member, field in (
            ({"import": "os:system"}, "import"),
            ({"auth": {"credentialsEnv": "PATH"}}, "auth.credentialsEnv"),
            ({"description": "${PATH}"}, "description"),
            ({"auth": {"scheme": "bearer"}}, "auth.credentials"),
            ({"colour": "red"}, "colour"),
        ):
            status, problem = await at.do("POST", "agents", {"name": "x", "url": url, **member})
            assert (status, problem["field"]) == (400, field), problem
        # Nobody reads what is kept by having it shown to somebody else.
        login = {"scheme": "oauth2", "tokenUrl": f"{url}/token", "clientId": "me"}
        elsewhere: list[dict[str, Any]] = [
            {"url": f"{url}/else"}, {"cardUrl": f"{url}/card"}, {"verifyTls": False}, {"auth": login},
        ]  # fmt: skip
        for change in elsewhere:
            status, told = await at.do(
                "PUT", "agents/mine", {"url": url, "auth": {"scheme": "bearer"}, **change}
            )
            assert (status, told["field"]) == (400, "auth.credentials"), change
        # Credentials that are not given again stay.
        again = {"url": url, "auth": {"scheme": "bearer"}, "description": "New"}
        status, mine = await at.do("PUT", "agents/mine", again)
        assert (status, mine["description"]) == (200, "New")
        await at.do("POST", "agents/mine/refresh")
        assert dict(at.cards.asked)["/a" + NEW]["authorization"] == f"Bearer {CANARY}"
        # Overrides, of any owner, last until the text changes.
        for name in ("mine", "filed"):
            for verb, state in (("disable", "disabled"), ("enable", "ready"), ("drain", "disabled")):
                status, shown = await at.do("POST", f"agents/{name}/{verb}")
                assert status == 200 and (shown["state"] == "disabled") == (state == "disabled"), shown
        other = made_of(at.at.store, lambda: 0, loopback=True)
        files.CatalogueFiles(at.folder, variable_of({}), other.catalogue.take_files).start()
        await other.start()
        kept = other.catalogue.find("north", "filed")
        assert kept is not None and kept.state == "disabled"
        path = at.folder / "agents.yaml"
        path.write_text(path.read_text() + "    description: changed\n")
        await at.until("filed", description="changed", state="ready")
        assert (await at.do("DELETE", "agents/mine")) == (200, {"name": "mine"})
        assert (await at.at.ask("root", "GET", "/api/agents/mine")).status_code == 404

    def text(url: str) -> str:
        return f"agents:\n  - name: filed\n    url: {url}/a/a2a\n{TENANTS}"

    fleet(tmp_path, text, work, prepare=prepare)


def test_a_log_says_which_entries_are_new_other_or_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(cards: CardServer) -> None:
        cards.cards["/a" + NEW] = card("a", "draft")

    async def work(at: Fleet) -> None:
        await at.until("a", state="ready")
        (at.folder / "agents.yaml").write_text("agents: []")
        async with asyncio.timeout(30):
            while "catalogue.removed" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    caplog.set_level("INFO", "trunkline.fleet")
    fleet(
        tmp_path,
        lambda url: f"agents: [{{name: a, url: '{url}/a/a2a', tenants: [{NORTH}]}}]",
        work,
        prepare=prepare,
    )
    said = [one.getMessage().split() for one in caplog.records if "agent=a" in one.getMessage()]
    assert [one[0] for one in said] == ["catalogue.added", "catalogue.changed", "catalogue.removed"]
    assert "skills,state" in said[1][2]


def test_an_entry_without_its_credentials_is_not_called(tmp_path: Path) -> None:
    def prepare(cards: CardServer) -> None:
        cards.cards["/a" + NEW] = card("a", "draft")

    async def work(at: Fleet) -> None:
        raw = {"name": "far", "url": f"{at.cards.url}/a/a2a", "auth": {"scheme": "bearer"}}
        # As an import keeps it.
        await at.service.documents.put(NORTH, "far", KeptEntry(owner="api", raw=raw, by="root"))
        assert (await at.do("POST", "agents/far/refresh"))[0] == 200
        far = await at.agent("far")
        assert (far["state"], far["url"]) == ("invalid", raw["url"])
        assert far["reason"].startswith("auth.credentials: ")
        assert at.cards.asked == []
        known = {**raw, "auth": {"scheme": "bearer", "credentials": CANARY}}
        assert (await at.do("PUT", "agents/far", known))[1]["state"] == "discovering"
        await at.until("far", state="ready")
        assert dict(at.cards.asked)["/a" + NEW]["authorization"] == f"Bearer {CANARY}"
        # Whoever says that there are none has lost none.
        assert (await at.do("PUT", "agents/far", {**raw, "auth": None}))[1]["state"] != "invalid"
        await at.until("far", state="ready")

    fleet(tmp_path, lambda _: "agents: []", work, prepare=prepare)


def test_an_agent_announces_itself_and_ends(tmp_path: Path) -> None:
    async def work(at: Fleet) -> None:
        made = {
            who: await at.at.application.host.key_store.create(who, tenant="north", scopes=("announce",))
            for who in ("one", "two")
        }
        at.at.keys.update({who: one.token for who, one in made.items()})
        form = {"url": f"{at.cards.url}/a", "ttl": 10}
        assert (await at.do("PUT", "announce/self", form, who="alice"))[0] == 403
        status, item = await at.do("PUT", "announce/self", form, who="one")
        assert (status, item["owner"], item["name"]) == (200, "announce", "self")
        found = at.service.catalogue.find(NORTH, "self")
        assert found is not None and found.entry.announced_by == "one"
        for name, who in (("self", "two"), ("filed", "one")):
            assert (await at.do("PUT", f"announce/{name}", form, who=who))[0] == 409
        for bad, field in (({"ttl": 301}, "ttl"), ({"url": "x"}, "url"), ({"url": "http://${HOME}"}, "url")):
            status, problem = await at.do("PUT", "announce/self", {**form, **bad}, who="one")
            assert (status, problem["field"]) == (400, field)
        at.clock += 9_000
        assert (await at.do("PUT", "announce/self", form, who="one"))[0] == 200
        at.clock += 9_000
        assert (await at.agent("self"))["owner"] == "announce"
        at.clock += 2_000
        async with asyncio.timeout(30):
            while (await at.at.ask("alice", "GET", "/api/agents/self")).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # Free for another key now; a ttl of 0 ends it at once.
        assert (await at.do("PUT", "announce/self", form, who="two"))[0] == 200
        # Not by a process whose place another one has taken.
        old = {"url": f"{at.cards.url}/old", "ttl": 0}
        assert (await at.do("PUT", "announce/self", old, who="two"))[0] == 200
        assert (await at.agent("self"))["url"] == form["url"]
        assert (await at.do("PUT", "announce/self", {**form, "ttl": 0}, who="two"))[0] == 200
        assert (await at.at.ask("alice", "GET", "/api/agents/self")).status_code == 404
        # By a clock that is ahead for a while.
        at.clock += 86_400_000
        assert (await at.do("PUT", "announce/self", form, who="two"))[0] == 200
        at.clock -= 86_400_000
        assert (await at.do("PUT", "announce/self", form, who="one"))[0] == 200

    fleet(tmp_path, lambda url: f"agents:\n  - name: filed\n    url: {url}/f\n{TENANTS}", work)


def test_a_name_that_two_want_at_once_is_given_to_one(tmp_path: Path) -> None:
    async def work(at: Fleet) -> None:
        for who in ("one", "two"):
            made = await at.at.application.host.key_store.create(who, tenant="north", scopes=("announce",))
            at.at.keys[who] = made.token
        url = at.cards.url.replace("127.0.0.1", "localhost")
        for place in range(5):
            wanted = await asyncio.gather(
                at.do("PUT", f"announce/a{place}", {"url": f"{url}/a"}, who="one"),
                at.do("PUT", f"announce/a{place}", {"url": f"{url}/b"}, who="two"),
                at.do("POST", "agents", {"name": f"a{place}", "url": f"{url}/c"}),
            )
            assert sorted([status for status, _ in wanted])[1:] == [409, 409]
            (won,) = [item for status, item in wanted if status != 409]
            assert (await at.agent(f"a{place}"))["url"] == won["url"]

    fleet(tmp_path, lambda _: "agents: []", work)


def test_of_many_who_say_something_of_an_agent_at_once_nobody_is_refused(tmp_path: Path) -> None:
    async def work(at: Fleet) -> None:
        made = await at.at.application.host.key_store.create("one", tenant="north", scopes=("announce",))
        at.at.keys["one"] = made.token
        form = {"url": f"{at.cards.url}/a"}
        said = [at.do("PUT", "announce/self", {**form, "ttl": 10 + place}, who="one") for place in range(10)]
        assert {status for status, _ in await asyncio.gather(*said)} == {200}
        said = [at.do("POST", f"agents/self/{what}") for what in ("enable", "disable", "drain") * 4]
        assert {status for status, _ in await asyncio.gather(*said)} == {200}

    fleet(tmp_path, lambda _: "agents: []", work)


def test_probe_and_the_egress_rule(tmp_path: Path) -> None:
    def prepare(cards: CardServer) -> None:
        cards.cards["/a" + OLD] = card("found", "draft")

    async def work(at: Fleet) -> None:
        status, found = await at.do("POST", "a2a/probe", {"url": f"{at.cards.url}/a/a2a"}, who="alice")
        assert status == 200 and found["reachable"] and found["name"] == "found"
        assert found["cardUrl"] == f"{at.cards.url}/a{OLD}" and found["versions"] == ["0.3"]
        assert [one["id"] for one in found["skills"]] == ["draft"]
        status, none = await at.do("POST", "a2a/probe", {"url": f"{at.cards.url}/b"}, who="alice")
        assert status == 200 and none["reachable"] and "no agent card" in none["error"]
        assert (await at.do("POST", "a2a/probe", {"url": "nothing"}, who="alice"))[0] == 400

    fleet(tmp_path, lambda _: "agents: []\n", work, prepare=prepare)

    async def guarded(at: Fleet) -> None:
        # A file is the operator's word; whatever others name obeys the rule.
        assert (await at.until("filed", state="ready"))["skills"]
        seen = len(at.cards.asked)
        url = f"{at.cards.url}/a"
        _, found = await at.do("POST", "a2a/probe", {"url": url}, who="alice")
        assert (found["reachable"], found["skills"], found["versions"]) == (False, [], [])
        told = {found["error"]}
        for method, path in (("POST", "agents"), ("PUT", "announce/x")):
            # An inner name is refused like one that nobody knows: they could be asked for one by one.
            for named in (url, "http://nobody.invalid/"):
                body = {"url": named, **({"name": "x"} if method == "POST" else {})}
                status, problem = await at.do(method, path, body)
                assert (status, problem["field"]) == (400, "url")
                told.add(problem["detail"].replace("nobody.invalid", "127.0.0.1"))
        _, none = await at.do("POST", "a2a/probe", {"url": "http://nobody.invalid/"}, who="alice")
        assert told == {none["error"].replace("nobody.invalid", "127.0.0.1")}
        assert len(at.cards.asked) == seen

    fleet(
        tmp_path,
        lambda url: f"agents:\n  - name: filed\n    url: {url}/a\n{TENANTS}",
        guarded,
        loopback=False,
        prepare=prepare,
    )


def test_agents_of_a_tenant_that_never_answer_keep_none_of_others_waiting(tmp_path: Path) -> None:
    def prepare(cards: CardServer) -> None:
        cards.silent = "/slow"
        cards.cards["/quick" + NEW] = card("quick", "draft")

    async def work(at: Fleet) -> None:
        url = at.cards.url
        for number in range(2 * discovery.ASKING):
            await at.do("POST", "agents", {"name": f"s{number}", "url": f"{url}/slow/{number}.json"})
        async with asyncio.timeout(30):
            while len(at.cards.paths("/slow")) < discovery.ASKING / 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # Who asks for cards by hand takes nobody's turn either.
        asking = [
            asyncio.create_task(at.do("POST", f"agents/s{number}/refresh"))
            for number in range(2 * discovery.ASKING)
        ]
        await at.do("POST", "agents", {"name": "quick", "url": f"{url}/quick"}, who="stranger")
        # Well before the first of the others is given up.
        async with asyncio.timeout(client_discovery.TIMEOUT_S - 5):
            while (await at.agent("quick", who="stranger"))["state"] != "ready":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    fleet(tmp_path, lambda _: "agents: []\n", work, prepare=prepare)


def test_a_large_card_is_asked_for_anew(tmp_path: Path) -> None:
    def prepare(cards: CardServer) -> None:
        cards.cards["/large" + NEW] = card("large", *[f"skill-{number}" for number in range(2000)])

    async def work(at: Fleet) -> None:
        await at.do("POST", "agents", {"name": "large", "url": f"{at.cards.url}/large"})
        listed = await at.until("large", state="ready")
        assert len(listed["skills"]) == 1000
        await at.do("POST", "agents/large/refresh")
        assert [("if-none-match" in headers) for path, headers in at.cards.asked if NEW in path] == [
            False
        ] * 2

    fleet(tmp_path, lambda _: "agents: []\n", work, prepare=prepare)


def test_cards_over_the_limit_of_a_tenant_are_refused_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="trunkline.fleet")
    monkeypatch.setattr(catalogue, "TENANT_CARD_BYTES", 40_000)

    def prepare(cards: CardServer) -> None:
        for name in ("first", "second", "filed"):
            cards.cards[f"/{name}{NEW}"] = {**card(name, "draft"), "description": "x" * 15_000}

    def text(url: str) -> str:
        return f"agents:\n  - name: filed\n    url: {url}/filed\n{TENANTS}"

    async def work(at: Fleet) -> None:
        await at.until("filed", state="ready")
        await at.do("POST", "agents", {"name": "first", "url": f"{at.cards.url}/first"})
        await at.until("first", state="ready")
        await at.do("POST", "agents", {"name": "second", "url": f"{at.cards.url}/second"})
        reason = (await at.until("second", state="unreachable"))["reason"]
        assert "64 MiB" in reason and "remove an agent or shorten a card" in reason
        assert reason in caplog.text
        assert (NORTH, "second") not in at.service.discovery._clients
        # Agents of another tenant are not affected.
        await at.do("POST", "agents", {"name": "theirs", "url": f"{at.cards.url}/first"}, who="stranger")
        async with asyncio.timeout(30):
            while (await at.agent("theirs", who="stranger"))["state"] != "ready":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # A shorter card of another agent frees room.
        at.cards.cards["/first" + NEW] = card("first", "draft")
        await at.do("POST", "agents/first/refresh")
        await at.do("POST", "agents/second/refresh")
        assert (await at.agent("second"))["state"] == "ready"
        at.cards.cards["/first" + NEW] = {**card("first", "draft"), "description": "x" * 15_000}
        await at.do("POST", "agents/first/refresh")
        assert (await at.agent("first"))["state"] == "unreachable"
        # So does its removal.
        await at.do("DELETE", "agents/second")
        await at.do("POST", "agents/first/refresh")
        assert (await at.agent("first"))["state"] == "ready"

    fleet(tmp_path, text, work, prepare=prepare)


def test_an_agent_that_cannot_be_asked_for_whatever_reason_does_not_end_the_asking_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = discovery.kept_of

    def fails(card: PeerCard) -> PeerCard:
        if card.name == "odd":
            raise RuntimeError("a mistake of ours")
        return real(card)

    monkeypatch.setattr(discovery, "kept_of", fails)

    def prepare(cards: CardServer) -> None:
        cards.cards["/odd" + NEW] = card("odd", "draft")
        cards.cards["/good" + NEW] = card("good", "draft")

    async def work(at: Fleet) -> None:
        await at.do("POST", "agents", {"name": "odd", "url": f"{at.cards.url}/odd"})
        assert "the log of the hub" in (await at.until("odd", state="unreachable"))["reason"]
        await at.do("POST", "agents", {"name": "good", "url": f"{at.cards.url}/good"}, who="stranger")
        async with asyncio.timeout(30):
            while (await at.agent("good", who="stranger"))["state"] != "ready":  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    fleet(tmp_path, lambda _: "agents: []\n", work, prepare=prepare)
