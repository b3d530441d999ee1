"""Principals: what they may do unless told, and what a tenant may be called."""

from __future__ import annotations

import pytest

from trunkline.auth.principal import ANONYMOUS, OPERATOR, Principal, Scope, check_tenant, scopes_of
from trunkline.errors import Misuse


def test_a_principal_may_use_tasks_and_no_more() -> None:
    assert Principal("default", "alice").scopes == {Scope.READ, Scope.WRITE}
    assert Scope.ADMIN not in ANONYMOUS.scopes
    assert frozenset(Scope) == OPERATOR


@pytest.mark.parametrize("name", ["default", "a", "Team-1", "acme.example", "x_y", "0"])
def test_a_tenant(name: str) -> None:
    check_tenant(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-x", "a b", "a/b", "a:b", "x" * 65, "v1", "tasks", "ui", "all", "schl\u00fcssel"]
)
def test_no_tenant(name: str) -> None:
    with pytest.raises(Misuse, match="cannot be a tenant"):
        check_tenant(name)


def test_scopes_have_the_names_that_workflow_engines_know() -> None:
    assert scopes_of(["start"]) == scopes_of(["resume", "submit_activity"]) == {Scope.WRITE}
    assert scopes_of(["read_history", "answer", "odd"]) == {Scope.READ, Scope.ANSWER}
