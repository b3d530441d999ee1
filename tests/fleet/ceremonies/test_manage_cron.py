"""`manage_cron` against a real API: with an agent's own key, and with texts whatever happens."""

from __future__ import annotations

from tests.fleet.ceremonies.hall import CREATE, LEAST, Hall, hall
from trunkline.fleet.ceremonies.manage_cron import MANAGE_CRON, Action, CronTool
from trunkline.net.in_process import BASE, InProcessHttpClient


def tool(at: Hall, who: str) -> CronTool:
    return CronTool(BASE, at.at.keys[who], http_client=InProcessHttpClient(at.at.application))


def test_an_agent_looks_after_its_ceremonies() -> None:
    async def work(at: Hall) -> None:
        await at.post("bob", CREATE, {**LEAST, "id": "foreign"})
        cron = tool(at, "alice")
        assert await cron("list") == "There are no ceremonies."
        made = await cron(
            "create", id="standup", name="Stand-up", schedule="0 9 * * *", skill="work", targets="desk, other"
        )
        assert made.startswith("Ceremony standup is ready, next at ")
        (listed,) = (await at.at.get("alice", "/api/ceremonies"))["items"]
        assert (listed["targets"], listed["createdBy"]) == (["desk", "other"], "alice")
        assert await cron("update", id="standup", enabled=False) == "Ceremony standup is paused."
        assert await cron("update", id="standup", name="New", enabled=None) == "Ceremony standup is paused."
        assert await cron("list") == "standup: paused, 0 9 * * *, work"
        assert (await cron("run", id="standup")).startswith("Run ")
        assert (await cron("delete", id="foreign")).startswith("Error 403: ")
        assert await cron("delete", id="standup") == "Ceremony standup is deleted."
        assert (await cron("delete", id="standup")).startswith("Error 404: ")
        await cron.close()

    hall(work)


def test_what_does_not_fit_is_told_and_not_sent() -> None:
    async def work(at: Hall) -> None:
        cron = tool(at, "alice")
        wrong: list[tuple[Action, dict[str, object], str]] = [
            ("update", {"id": "standup"}, "nothing is to be changed"),
            ("run", {"id": "../x"}, "no id of a ceremony"),
            ("delete", {}, "no id of a ceremony"),
            ("create", {"id": "a", "cron": "x"}, "there is no 'cron'"),
            ("create", {"id": "a", "schedule": "x"}, "Error 400: "),
        ]
        for action, members, expected in wrong:
            said = await cron(action, **members)
            assert said.startswith("Error") and expected in said, said
        assert "no action" in await cron("explode")  # pyright: ignore[reportArgumentType]
        stranger = CronTool(BASE, "wrong-key", http_client=InProcessHttpClient(at.at.application))
        said = await stranger("list")
        assert said.startswith("Error 401: ") and "wrong-key" not in said
        away = CronTool("http://127.0.0.1:9", "key")
        assert (await away("list")).startswith("Error: ")
        await away.close()
        assert set(MANAGE_CRON["parameters"]["properties"]) > {"action", "id", "enabled"}

    hall(work)
