"""Reading the headers that name extensions."""

from __future__ import annotations

import pytest

from trunkline.errors import InvalidParams
from trunkline.wire.extensions import COUNT_LIMIT, LENGTH_LIMIT, read_extensions


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ()),
        ({"A2A-Extensions": ""}, ()),
        ({"A2A-Extensions": " , ,"}, ()),
        ({"A2A-Extensions": "urn:a"}, ("urn:a",)),
        ({"A2A-Extensions": "urn:b,urn:a , urn:b"}, ("urn:b", "urn:a")),
        ({"A2A-Extensions": "urn:a", "X-A2A-Extensions": "urn:c, urn:a"}, ("urn:a", "urn:c")),
    ],
)
def test_names_in_their_order_each_once(given: dict[str, str], found: tuple[str, ...]) -> None:
    assert read_extensions(given) == found


def test_as_many_and_as_long_as_may_be() -> None:
    uris = [f"{number:0{LENGTH_LIMIT}d}" for number in range(COUNT_LIMIT)]
    both = {"A2A-Extensions": ",".join(uris), "X-A2A-Extensions": ", ".join(uris)}
    assert read_extensions(both) == tuple(uris)


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize("value", ["u" * (LENGTH_LIMIT + 1), ",".join(map(str, range(COUNT_LIMIT + 1)))])
def test_what_is_over_a_bound_is_refused_by_the_name_of_its_header(header: str, value: str) -> None:
    with pytest.raises(InvalidParams, match=header) as caught:
        read_extensions({header: value})
    assert caught.value.field == header


def test_the_bound_counts_both_headers_together() -> None:
    one, other = (",".join(f"{name}{number}" for number in range(17)) for name in "ab")
    with pytest.raises(InvalidParams) as caught:
        read_extensions({"A2A-Extensions": one, "X-A2A-Extensions": other})
    assert caught.value.field == "X-A2A-Extensions"
