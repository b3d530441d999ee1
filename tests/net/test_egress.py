"""What a URL is, whom the operator allows, and what a refusal says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from tests.net.targets import names
from trunkline.errors import Unreachable
from trunkline.net.egress import Egress, target
from trunkline.net.resolver import ResolverBusy

NAMES = names(
    public_test=["93.184.215.14", "2606:2800:21f:cb07::1"],
    inner_test=["10.1.2.3"],
    mixed_test=["93.184.215.14", "10.1.2.3"],
    local_test=["127.0.0.1"],
    zoned_test=["fe80::1%eth0"],
    broken_test=["not-an-address"],
    empty_test=[],
    bücher_test=["10.9.9.9"],
    **{"xn--bcher-kva_test": ["10.9.9.9"]},
)


def outcome(url: str, egress: Egress) -> str:
    try:
        asyncio.run(egress.check(url))
    except Unreachable as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://public.test/hook?key=1", ""),
        ("http://PUBLIC.test.:8080", ""),
        ("http://inner.test/", "refused"),
        ("http://mixed.test/", "refused"),
        ("http://local.test/", "refused"),
        ("http://zoned.test/", "refused"),
        ("http://broken.test/", "refused"),
        ("http://empty.test/", "name"),
        ("http://unknown.test/", "name"),
        ("http://user:pw@public.test/", "url"),
        ("ftp://public.test/", "url"),
        ("http://public.test:0/", "url"),
        ("http:///hook", "url"),
        ("http://public.test:port/", "url"),
    ],
)
def test_by_default(url: str, reason: str) -> None:
    assert outcome(url, Egress(resolver=NAMES)) == reason


@pytest.mark.parametrize("allowed", ["inner.test", " INNER.test. ", "inner.TEST"])
def test_a_host_that_the_operator_allows(allowed: str) -> None:
    egress = Egress(hosts=[allowed], resolver=NAMES)
    assert outcome("http://inner.test:99/", egress) == ""
    assert outcome("http://inner.test./", egress) == ""
    assert outcome("http://sub.inner.test/", egress) == "name"
    assert outcome("http://mixed.test/", egress) == "refused"


def test_a_host_in_another_alphabet() -> None:
    assert outcome("http://bücher.test/", Egress(hosts=["BÜCHER.test"], resolver=NAMES)) == ""
    assert outcome("http://xn--bcher-kva.test/", Egress(hosts=["bücher.test"], resolver=NAMES)) == ""


@pytest.mark.parametrize("address", ["10.1.2.3", "[::1]", "[FD00::1]"])
def test_an_address_as_an_allowed_host(address: str) -> None:
    assert outcome(f"http://{address}/", Egress(hosts=[address.strip("[]")])) == ""
    assert outcome(f"http://{address}/", Egress(hosts=[address])) == ""
    assert outcome(f"http://{address}/", Egress()) == "refused"


def test_networks_that_the_operator_allows() -> None:
    egress = Egress(networks=["10.1.0.0/16", "fe80::/10"], resolver=NAMES)
    assert outcome("http://inner.test/", egress) == ""
    assert outcome("http://mixed.test/", egress) == ""
    assert outcome("http://local.test/", egress) == "refused"
    assert outcome("http://zoned.test/", egress) == "refused"
    assert outcome("http://broken.test/", egress) == "refused"
    assert outcome("http://[::ffff:10.1.2.3]/", egress) == "refused"
    assert outcome("http://[fe80::1]/", egress) == ""


def test_a_network_may_be_one_address_or_have_its_host_bits_set() -> None:
    assert outcome("http://inner.test/", Egress(networks=["10.1.2.3"], resolver=NAMES)) == ""
    assert outcome("http://inner.test/", Egress(networks=["10.1.2.99/24"], resolver=NAMES)) == ""


def test_loopback_while_developing() -> None:
    egress = Egress(loopback=True, resolver=NAMES)
    assert outcome("http://local.test/", egress) == ""
    assert outcome("http://[::1]:8000/", egress) == ""
    assert outcome("http://inner.test/", egress) == "refused"
    assert outcome("http://[::ffff:127.0.0.1]/", egress) == "refused"


def test_what_is_malformed_is_ignored_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "trunkline.net"):
        egress = Egress(
            hosts=["inner.test", "*.test", "https://inner.test", "inner.test:80", ""],
            networks=["10.1.0.0/99", "private", "10.1.0.0/16"],
            resolver=NAMES,
        )
    assert [record.getMessage() for record in caplog.records] == [
        "egress.ignored host='*.test'",
        "egress.ignored host='https://inner.test'",
        "egress.ignored host='inner.test:80'",
        "egress.ignored host=''",
        "egress.ignored network='10.1.0.0/99'",
        "egress.ignored network='private'",
    ]
    assert outcome("http://inner.test/", egress) == ""


def test_a_refusal_names_the_host_and_the_fix_and_nothing_secret() -> None:
    with pytest.raises(Unreachable) as error:
        asyncio.run(Egress(resolver=NAMES).check("https://inner.test/in?token=s3cret#s3cret"))
    text = str(error.value)
    assert all(word in text for word in ("inner.test", "egress_hosts", "egress_networks", "--dev"))
    assert not any(word in text for word in ("s3cret", "10.1.2.3", "private"))


def test_every_refusal_and_an_unknown_name_have_one_text_and_the_log_has_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinds = {
        "inner.test": "inner.test leads to 10.1.2.3, which is not public (private)",
        "local.test": "local.test leads to 127.0.0.1, which is not public (loopback)",
        "mixed.test": "mixed.test leads to 10.1.2.3, which is not public (private)",
        "169.254.169.254": "169.254.169.254 leads to 169.254.169.254, which is not public (metadata)",
        "broken.test": "broken.test leads to not-an-address, which is not public (malformed)",
        "empty.test": "empty.test: the name has no address",
        "unknown.test": "unknown.test: the name cannot be resolved",
    }
    egress, texts = Egress(resolver=NAMES), set[str]()
    with caplog.at_level(logging.INFO, "trunkline.net"):
        for host in kinds:
            with pytest.raises(Unreachable) as checked:
                asyncio.run(egress.check(f"https://{host}/"))
            with pytest.raises(Unreachable) as dialled:
                asyncio.run(egress.addresses(host, 443))
            texts |= {str(one.value).replace(host, "HOST") for one in (checked, dialled)}
    assert len(texts) == 1
    logged = [record.getMessage().partition("error=")[2].strip("'") for record in caplog.records]
    assert logged == [text for text in kinds.values() for _ in range(2)]


def test_a_name_that_the_operator_allows_is_reported_precisely() -> None:
    with pytest.raises(Unreachable, match=r"^unknown\.test: the name cannot be resolved$"):
        asyncio.run(Egress(hosts=["unknown.test"], resolver=NAMES).check("https://unknown.test/"))


@pytest.mark.parametrize(
    "url", ["http://me:s3cret@public.test/", "http://s3cret:80:80/", "s3cret://x/", "http://pu blic/s3cret"]
)
def test_a_url_that_is_none_is_not_repeated(url: str) -> None:
    with pytest.raises(Unreachable) as error:
        target(url)
    assert error.value.reason == "url"
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a." * 127 + "test", "a..test", "-" * 300])
def test_names_that_no_resolver_takes(host: str) -> None:
    assert outcome(f"http://{host}/", Egress()) == "url"


def test_a_resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.egress._NAME_S", 0.01)

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    assert outcome("http://public.test/", Egress(resolver=never)) == "name"


def test_an_address_is_not_looked_up() -> None:
    """2.3: whoever is called by its number needs no resolver, however busy that is."""

    async def busy(host: str, port: int) -> Sequence[str]:
        raise ResolverBusy

    egress = Egress(resolver=busy)
    assert asyncio.run(egress.addresses("93.184.215.14", 80)) == ["93.184.215.14"]
    assert outcome("https://[2606:2800:21f:cb07::1]/", egress) == ""
    assert outcome("https://10.0.0.1/", egress) == "refused"
    assert outcome("https://public.test/", egress) == "busy"


def test_remedy_names_the_tenant_whose_settings_count() -> None:
    for egress, remedy in (
        (Egress(), "the operator allows it with egress_hosts = 127.0.0.1"),
        (
            Egress(tenant="acme"),
            "an operator allows it with: trunkline tenant set acme --egress-host 127.0.0.1",
        ),
    ):
        with pytest.raises(Unreachable, match=remedy):
            asyncio.run(egress.check("http://127.0.0.1/"))
