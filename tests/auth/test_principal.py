"""Principals: what they may do unless told, and what a tenant may be called."""

from __future__ import annotations

import inspect

import pytest

from trunkline.auth.principal import (
    ANONYMOUS,
    OPERATOR,
    Principal,
    Scope,
    check_tenant,
    scopes_of,
    with_included,
)
from trunkline.errors import Misuse


def test_a_principal_has_no_scopes_by_default() -> None:
    assert inspect.signature(Principal).parameters["scopes"].default is inspect.Parameter.empty
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


def test_scopes_of_workflows_are_narrower_than_those_of_tasks() -> None:
    assert scopes_of(["start", "read_history", "odd"]) == {Scope.START, Scope.HISTORY}
    assert with_included(scopes_of(["tasks:read", "answer"])) == {Scope.READ, Scope.HISTORY, Scope.ANSWER}
    assert with_included(scopes_of(["start"])) == {Scope.START}
