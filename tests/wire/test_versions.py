from __future__ import annotations

import pytest

from trunkline.errors import VersionNotSupported
from trunkline.wire.versions import Version, negotiate


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
