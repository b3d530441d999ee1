"""What the door knows of the operator's API is what the API does."""

from __future__ import annotations

from trunkline.fleet.api import ROUTES
from trunkline.fleet.mount import SCOPES


def test_every_route_has_its_scope() -> None:
    assert [route.pattern for route in ROUTES] == list(SCOPES)
