"""The rules for a ceremony: equal for files and the API; what does not fit is named."""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec
import pytest

from trunkline.errors import InvalidParams
from trunkline.fleet.call import read_body
from trunkline.fleet.ceremonies.ceremony import (
    Ceremony,
    CeremonyChanges,
    CeremonyForm,
    ceremony_of,
    changed_ceremony,
    file_ceremony,
)
from trunkline.fleet.ceremonies.runs import OPENED, opened_in
from trunkline.fleet.journal import Journal, JournalRow

NOW = 1_800_000_000_000
LEAST = {"id": "standup", "name": "Stand-up", "schedule": "0 9 * * 1-5", "skill": "report"}


def by_api(**members: Any) -> Ceremony:
    body = msgspec.json.encode({name: value for name, value in {**LEAST, **members}.items() if value != ...})
    return ceremony_of(read_body(body, CeremonyForm), "north", NOW)


def by_file(**members: Any) -> Ceremony:
    return file_ceremony(
        {name: value for name, value in {**LEAST, **members}.items() if value != ...}, "stem"
    )


def test_the_least_of_a_ceremony() -> None:
    form = by_api().form
    assert (form.targets, form.enabled, form.timezone) == (("all",), True, "UTC")
    assert (form.overlap, form.misfire, form.jitter_ms, form.timeout_ms) == ("skip", "once", 0, 0)
    own = by_file(id=...)
    assert (own.id, own.tenant, own.form.created_by, own.owner, own.since) == (
        "stem",
        "default",
        "system",
        "file",
        0,
    )


BAD: list[tuple[str, dict[str, Any]]] = [
    ("id", {"id": ".."}),
    ("id", {"id": "a/b"}),
    ("id", {"id": ""}),
    ("id", {"id": "x" * 65}),
    ("name", {"name": ...}),
    ("name", {"name": ""}),
    ("name", {"name": "a\nb"}),
    ("skill", {"skill": ...}),
    ("skill", {"skill": 7}),
    ("schedule", {"schedule": ...}),
    ("schedule", {"schedule": "99 * * * *"}),
    ("timezone", {"timezone": "Moon"}),
    ("targets", {"targets": []}),
    ("targets", {"targets": "all"}),
    ("targets", {"targets": ["a", "a"]}),
    ("targets", {"targets": ["all", "a"]}),
    ("targets[1]", {"targets": ["a", "b c"]}),
    ("targets", {"targets": [f"a{n}" for n in range(101)]}),
    ("enabled", {"enabled": "maybe"}),
    ("overlap", {"overlap": "wait"}),
    ("misfire", {"misfire": "twice"}),
    ("jitterMs", {"jitterMs": -1}),
    ("timeoutMs", {"timeoutMs": "5"}),
    ("notifyChannel", {"notifyChannel": "../x"}),
    ("notifyWebhook", {"notifyWebhook": "file:///etc/passwd"}),
    ("notifyWebhook", {"notifyWebhook": "http://me:secret@host/"}),
    ("cron", {"cron": "* * * * *"}),
    ("message", {"message": "a\0b"}),
    ("data", {"data": "x" * 70_000}),
]


@pytest.mark.parametrize(("field", "members"), BAD)
def test_hb29_what_does_not_fit_is_named(field: str, members: dict[str, Any]) -> None:
    for read in (by_api, by_file):
        with pytest.raises(InvalidParams) as caught:
            read(**members)
        assert caught.value.field == field, read
        assert "secret" not in caught.value.message


def test_only_a_file_names_what_the_machine_has() -> None:
    assert by_file(notifyWebhookEnv="HOOK", tenant="north").notify_env == "HOOK"
    with pytest.raises(InvalidParams, match="notifyWebhookEnv"):
        by_api(notifyWebhookEnv="HOOK")
    for members in ({"notifyWebhookEnv": "https://x"}, {"tenant": "a b"}, {"schedule": date(2030, 1, 1)}):
        with pytest.raises(InvalidParams):
            by_file(**members)
    assert by_file(data={"day": date(2030, 1, 1), 7: "x"}).form.data == {"day": "2030-01-01", "7": "x"}
    with pytest.raises(InvalidParams, match="did you mean 'skill'"):
        by_file(skil="x")


def test_a_single_moment_lies_ahead() -> None:
    assert by_api(schedule="2030-01-01T00:00:00").schedule.once
    with pytest.raises(InvalidParams, match="has passed"):
        by_api(schedule="2020-01-01T00:00:00")
    assert by_file(schedule="2020-01-01T00:00:00").schedule.once


def changes(**members: Any) -> CeremonyChanges:
    return read_body(msgspec.json.encode(members), CeremonyChanges)


def test_hb28_what_is_absent_stays() -> None:
    paused = changed_ceremony(by_api(), changes(enabled=False), NOW + 1)
    assert (paused.form.enabled, paused.since) == (False, NOW + 1)
    renamed = changed_ceremony(paused, changes(name="Other", data=None), NOW + 2)
    assert (renamed.form.enabled, renamed.form.name, renamed.form.data) == (False, "Other", None)
    assert (renamed.since, renamed.mark) == (NOW + 1, paused.mark)
    resumed = changed_ceremony(renamed, changes(enabled=True), NOW + 3)
    assert resumed.since == NOW + 3


def test_a_change_obeys_the_same_rules() -> None:
    bad: list[dict[str, Any]] = [
        {},
        {"schedule": "x"},
        {"targets": []},
        {"enabled": "maybe"},
        {"id": "b"},
        {"createdBy": "b"},
    ]
    for members in bad:
        with pytest.raises(InvalidParams):
            changed_ceremony(by_api(), changes(**members), NOW)
    with pytest.raises(InvalidParams, match="has passed"):
        changed_ceremony(by_api(), changes(schedule="2020-01-01T00:00:00"), NOW)


def test_damaged_row_of_a_history_keeps_no_schedule_from_running() -> None:
    rows = tuple([JournalRow(1, OPENED, about) for about in ({}, {"runId": []}, {"runId": "r1"})])
    assert "r1" in opened_in(Journal(rows))
