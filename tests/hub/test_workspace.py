"""What the files of a hub's workspace may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.cli.hub_check import check
from trunkline.errors import Misuse
from trunkline.gateway.tenants import TenantQuota
from trunkline.hub.workspace import KeyFile, read_hub, read_keys


def test_the_limits_of_alerts_stand_in_hub_yaml(tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    file.write_text("alerts:\n  daily_cost_usd: 5\n  cooldown: 1h\n")
    limits = read_hub(tmp_path).alerts
    assert (limits.daily_cost_usd, limits.cooldown, limits.failure_rate_1h) == (5.0, "1h", 0.5)
    file.write_text("alerts:\n  costs: 5\n")
    with pytest.raises(Misuse, match=r"hub.yaml, line 2: .*costs"):
        read_hub(tmp_path)


def test_limits_of_tenants_and_keys_stand_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub.yaml").write_text("quota: {requests_per_minute: 60, cost_per_day: 5}")
    assert read_hub(tmp_path).quota == TenantQuota(requests_per_minute=60, cost_per_day=5)
    monkeypatch.setenv("CI_KEY", "a-key-of-the-test")
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys: {ci: {env: CI_KEY, quota: {concurrent_tasks: 2}}}")
    assert [one.quota for one in read_keys(tmp_path)] == [TenantQuota(concurrent_tasks=2)]
    keys.write_text("keys:\n  ci:\n    env: CI_KEY\n    quota: {cost_per_year: 2}\n")
    with pytest.raises(Misuse, match=r"keys.yaml, line 4: keys.ci.quota.cost_per_year: unknown"):
        read_keys(tmp_path)
    # Which member or key is wrong is told, not only in which line.
    (tmp_path / "hub.yaml").write_text("quota: {requests_per_minute: 60, cost_per_day: 0}")
    with pytest.raises(Misuse, match=r"hub.yaml, line 1: quota.cost_per_day: expected"):
        read_hub(tmp_path)
    monkeypatch.setenv("CI_KEY", "short")
    keys.write_text("keys:\n  ci: {env: CI_KEY}\n")
    with pytest.raises(Misuse, match=r"keys.yaml, line 2: keys.ci: a key must have at least 8"):
        read_keys(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("hub.yaml", "name: a\nhelm: [a]", "line 2: helm: expected string, got array"),
        ("hub.yaml", "alerts:\n  costs: 5", "line 2: alerts.costs: unknown field; there are failure_rate_1h, "),
        (
            "hub.yaml",
            "notify:\n  - {name: a, webhook: 'http://x',\n     about: [all]}",
            "line 3: notify[0].about[0]: invalid enum value 'all'; choose alerts, progress, questions",
        ),
        ("keys.yaml", "keys:\n  a: {env: A}\n  b: {scopes: [admin]}", "line 3: keys.b.env: it is missing; there are"),
        (
            "keys.yaml",
            "keys:\n  a: {env: A}\n  b: {env: A, scopes: [admin]}",
            "line 3: keys.b: A holds the key of a too; give each a key of its own",
        ),
        ("hub.yaml", 'helm: a\nname: "a\\tb"', "line 2: name: it holds control characters"),
        ("hub.yaml", 'name: a\ndescription: "a\\x07b"', "line 2: description: it holds control characters"),
        ("hub.yaml", "settings:\n  secret_key: short", "line 2: secret_key must have at least 16 characters"),
        ("hub.yaml", "settings:\n  retention: 7x", "line 2: setting 'retention': '7x' is not"),
        ("hub.yaml", "settings:\n  wait_limit: x", "line 2: settings.wait_limit: 'x' is not a duration"),
        ("keys.yaml", "keys: {5: {env: A}}", "line 1: expected string, got integer - at key"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_line_a_name_and_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, said: str
) -> None:
    monkeypatch.setenv("A", "a-key-of-the-test")
    (tmp_path / file).write_text(text)
    with pytest.raises(Misuse) as refused:
        _ = read_hub(tmp_path), read_keys(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / file}, {said}")


def test_keys_are_taken_once_their_file_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_KEY", "a-key-of-the-test")
    monkeypatch.setenv("CD_KEY", "another-of-the-test")
    file, path = KeyFile(tmp_path), tmp_path / "keys.yaml"
    whole = "keys:\n  ci: {env: CI_KEY}\n  cd: {env: CD_KEY}\n"
    path.write_text(whole)
    assert file.look() is None
    assert len(file.look() or []) == 2
    # Half of it is whole YAML, with half the keys.
    path.write_text(whole[: whole.index("  cd")])
    assert file.look() is None
    path.write_text(whole)
    assert [file.look(), len(file.look() or [])] == [None, 2]
    path.unlink()
    assert [file.look(), file.look()] == [None, []]


def test_each_mistake_of_a_workspace_is_told_once(tmp_path: Path) -> None:
    for name, text in {
        "agents.yaml": "agents:\n  - {name: a, url: 'http://x'}\n  - {name: a, url: 'http://y'}\n",
        "agents.d/a.yaml": "name: agent\nurl: 5\n",
        "agents.d/c.yml": "name: c\nname: d\n",
        "agents.d/here.yaml": "name: here\nimport: beside.inner:agent\n",
        "agents.d/there.yaml": "name: there\nimport: pytest:agent\n",
        "agents.d/right.yaml": "name: right\nimport: beside:agent\n",
        "agents.d/gone.yaml": "name: gone\nimport: nowhere.inner:agent\n",
        "beside.py": "agent = None\nraise SystemExit('nothing is started')\n",
        "hub.yaml": "nam: x\n",
        "ceremonies/e.yaml": "name: 7\n",
        "ceremonies/f.yaml": "title: 7\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [one.partition("; ")[0].partition(" with value")[0] for one in check(str(tmp_path))] == [
        "hub.yaml, line 1: nam: unknown field",
        "ceremonies/e.yaml, line 1: name: expected string, got integer",
        "ceremonies/f.yaml, line 1: title: unknown field",
        "agents.d/gone.yaml, line 2: gone: there is no module 'nowhere.inner', neither in the workspace nor installed",
        "agents.d/here.yaml, line 2: here: there is no module 'beside.inner', neither in the workspace nor installed",
        "agents.d/there.yaml, line 2: there: module 'pytest' has no 'agent'",
        "agents.yaml, line 3: there are two agents 'a'",
        "agents.d/a.yaml, line 2: agent: url: expected string, got integer",
        'agents.d/c.yml, line 2: invalid YAML: found duplicate key "name"',
    ]
