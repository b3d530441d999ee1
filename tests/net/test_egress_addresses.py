"""The table itself: every row counts, and holds to its last address. The addresses are in tests/hostile."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from trunkline.net.egress import _RANGES as ROWS
from trunkline.net.egress import judge


@pytest.mark.parametrize(("network", "why"), ROWS, ids=[str(network) for network, _ in ROWS])
def test_a_row(network, why: str) -> None:
    found = {judge(str(network[0])), judge(str(network[-1]))}
    # A narrower row may hold an end of it, never both, or this one would be idle.
    assert why in found
    assert "" not in found


@pytest.mark.parametrize("version", [4, 6])
def test_no_row_is_hidden_by_one_before_it(version: int) -> None:
    networks = [network for network, _ in ROWS if network.version == version]
    hidden = [
        (str(row), str(before))
        for place, row in enumerate(networks)
        for before in networks[:place]
        if row.subnet_of(before)
    ]
    assert hidden == []


def test_what_is_left_of_ipv6_is_what_is_given_out() -> None:
    for first in range(0, 0x10000, 0x10):
        address = str(ip_address(first << 112 | 0x1234 << 96 | 1))
        if not 0x2000 <= first < 0x4000:
            assert judge(address), address


@pytest.mark.parametrize("text", ["", "localhost", "127.0.0.1.", "1.2.3", "0x7f.0.0.1", "::g", " 8.8.8.8"])
def test_what_is_no_address(text: str) -> None:
    assert judge(text) == "malformed"
