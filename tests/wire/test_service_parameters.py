"""Reading the headers that name versions, extensions and the work that a request belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidParams, VersionNotSupported
from trunkline.wire.service_parameters import (
    COUNT_LIMIT,
    LENGTH_LIMIT,
    Version,
    negotiate,
    read_correlation,
    read_extensions,
)
from trunkline.wire.types import Correlation


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("1", Version.V1),
        ("1.0", Version.V1),
        (" 1.0 ", Version.V1),
        ("1.0.7", Version.V1),
        ("0.3", Version.V03),
        ("0.3.0", Version.V03),
        ("0.2.6", Version.V03),
        ("0.2", Version.V03),
        ("", None),
        (None, None),
    ],
)
def test_VER_02_VER_03_VER_05_known_versions(asked: str | None, version: Version | None) -> None:
    assert negotiate(asked, None) is version
    assert negotiate(None, asked) is version
    assert negotiate("", asked) is version


def test_the_header_wins() -> None:
    assert negotiate("1.0", "0.3") is Version.V1


@pytest.mark.parametrize(
    "asked", ["99.0", "1.1", "2", "0.1", "0.30", "v1.0", "1.0\n2", "latest", "1.0, 0.3", "1.٠"]
)
def test_VER_01_VER_04_other_versions(asked: str) -> None:
    with pytest.raises(VersionNotSupported) as caught:
        negotiate(asked, None)
    assert caught.value.details["supportedVersions"] == "1.0, 0.3"


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


CORRELATION, PARENT = b"x-correlation-id", b"x-parent-id"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({CORRELATION: b"c", PARENT: b"p"}, Correlation("c", "p")),
        ({CORRELATION: b"c"}, Correlation("c", "")),
        ({PARENT: b"p"}, Correlation("", "p")),
        ({CORRELATION: b"c" * 256, PARENT: b"p" * 257}, Correlation("c" * 256, "")),
        ({CORRELATION: b"a\x1bb", PARENT: b""}, None),
    ],
)
def test_usable_correlation_headers_are_read(headers: dict[bytes, bytes], found: Correlation | None) -> None:
    assert read_correlation(headers) == found


@given(st.dictionaries(st.sampled_from([CORRELATION, PARENT, b"host"]), st.binary(max_size=300)))
def test_any_correlation_header_yields_printable_ids_or_none(headers: dict[bytes, bytes]) -> None:
    found = read_correlation(headers)
    if found is not None:
        assert found != Correlation()
        assert all(len(one) <= 256 and one.isprintable() for one in (found.correlation_id, found.parent_id))
