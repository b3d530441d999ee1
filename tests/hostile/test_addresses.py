"""Rows 44–46: addresses that must never be dialled, and every way to write them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest
import uvloop

from trunkline.errors import Unreachable
from trunkline.net.egress import Egress, judge
from trunkline.net.fetch import Fetcher

VERDICTS = {
    "unspecified": ["0.0.0.0", "0.0.0.1", "0.1.2.3", "0.255.255.255", "::"],
    "loopback": ["127.0.0.0", "127.0.0.1", "127.0.0.53", "127.0.1.1", "127.1.2.3", "127.255.255.255", "::1"],
    "private": [
        "10.0.0.0", "10.0.0.1", "10.96.0.1", "10.255.255.255", "172.16.0.0", "172.17.0.1", "172.20.10.1",
        "172.31.255.255", "192.168.0.0", "192.168.0.1", "192.168.65.2", "192.168.122.1", "192.168.255.255",
        "fc00::", "fc00::1", "fd00::1", "fd12:3456:789a::1", "fd7a:115c:a1e0::1",
        "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ],
    "metadata": [
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16",
        "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    ],
    "link-local": [
        "169.254.0.0", "169.254.0.1", "169.254.1.1", "169.254.169.253", "169.254.169.255",
        "169.254.255.255", "fe80::", "fe80::1", "fe80::a9fe:a9fe", "febf:ffff::1",
    ],
    "carrier-grade NAT": ["100.64.0.0", "100.64.0.1", "100.100.0.1", "100.101.102.103", "100.127.255.255"],
    "reserved": [
        "192.0.0.0", "192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.170", "192.0.0.255", "240.0.0.0",
        "240.0.0.1", "250.1.2.3", "255.255.255.254", "100:0:0:1::1", "200::1", "1000::1", "1fff::1",
        "2001:1::1", "2001:1::2", "2001:5::1", "2001:30::1", "2001:1ff::1", "3ffe::1", "4000::1",
        "6000::1", "8000::1", "a000::1", "c000::1", "e000::1", "f000::1", "fe00::1", "64:ff9b:2::1",
    ],
    "documentation": [
        "192.0.2.0", "192.0.2.1", "192.0.2.255", "198.51.100.0", "198.51.100.7", "198.51.100.255",
        "203.0.113.0", "203.0.113.9", "203.0.113.255", "2001:db8::", "2001:db8::1", "2001:db8:ffff::1",
        "3fff::1", "3fff:fff::1",
    ],
    "benchmarking": ["198.18.0.0", "198.18.0.1", "198.19.255.255", "2001:2::1"],
    "multicast": [
        "224.0.0.0", "224.0.0.1", "224.0.0.251", "233.252.0.1", "239.255.255.250", "239.255.255.255",
        "ff00::1", "ff02::1", "ff02::fb", "ff05::1:3", "ff0e::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ],
    "broadcast": ["255.255.255.255"],
    "v4-mapped": [
        "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8",
        "::ffff:0.0.0.0", "0:0:0:0:0:ffff:c0a8:1",
    ],
    "v4-translated": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
    "v4-compatible": ["::127.0.0.1", "::7f00:1", "::10.0.0.1", "::8.8.8.8", "::2", "::169.254.169.254"],
    "NAT64": [
        "64:ff9b::", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::8.8.8.8",
        "64:ff9b:1::", "64:ff9b:1::7f00:1", "64:ff9b:1:ffff::10.0.0.1",
    ],
    "6to4": [
        "192.88.99.0", "192.88.99.1", "192.88.99.255", "2002::", "2002:7f00:1::", "2002:0a00:0001::1",
        "2002:a9fe:a9fe::", "2002:808:808::1",
    ],
    "Teredo": ["2001::", "2001:0:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::80ff:fffe"],
    "ORCHID": ["2001:10::1", "2001:1f::1", "2001:20::1", "2001:2f:ffff::1"],
    "SRv6": ["5f00::", "5f00::1", "5f00:ffff::1"],
    "site-local": ["fec0::", "fec0::1", "fec0:0:0:ffff::1", "feff::1"],
    "discard": ["100::", "100::1", "100::ffff:ffff:ffff:ffff"],
    "AS112": ["192.31.196.1", "192.175.48.6", "2001:4:112::1", "2620:4f:8000::1"],
    "AMT": ["192.52.193.1", "2001:3::1"],
    "zone id": ["fe80::1%eth0", "fe80::1%1", "::1%lo", "2606:4700:4700::1111%eth0", "8.8.8.8%1"],
    "": [
        "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.215.14", "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.0", "168.63.129.15", "169.253.255.255", "169.255.0.0", "172.15.255.255",
        "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0", "192.167.255.255",
        "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255",
        "203.0.114.0", "223.255.255.255", "2000::1", "2001:200::1", "2001:4860:4860::8888", "2001:db7::1",
        "2001:db9::1", "2003::1", "2400:cb00::1", "2606:4700:4700::1111", "2a00:1450:4001::1", "3fff:1000::1",
        "3ffd::1",
    ],
}  # fmt: skip
ADDRESSES = {address: why for why, addresses in VERDICTS.items() for address in addresses}

# What becomes of a URL that means this machine or the network around it: judged by the number that it leads to,
# no URL at all, or a name that nobody knows.
SPELLINGS = {
    "refused": [
        "http://2130706433/", "http://2130706433:8080/x", "http://0x7f000001/", "http://0X7F000001/",
        "http://017700000001/", "http://0177.0x0.0.1/", "http://127.1/", "http://127.0.1/", "http://127.0x1/",
        "http://0x7f.1/", "http://0x7f.0.0.1/", "http://0x7f.0x0.0x0.0x1/", "http://0/", "http://0.0/",
        "http://00/", "http://0x0/", "http://2852039166/", "http://0xa9fea9fe/", "http://0xA9.0xFE.0xA9.0xFE/",
        "http://169.254.43518/", "http://169.16689662/", "http://025177524776/", "http://0251.254.0xa9.254/",
        "http://167772161/", "http://10.1/", "http://0x0a000001/", "http://012.1/", "http://192.168.257/",
        "http://192.11010049/", "http://3232235777/", "http://0xc0a80101/", "http://172.16.1/",
        "http://4294967295/", "http://3758096385/", "http://1681915904/", "http://127。0。0。1/",
        "http://127．0．0．1/", "http://LOCALHOST/", "http://LocalHost:80/", "http://localhost./",
        "http://@127.0.0.1/", "http://127.0.0.1#@hooks.example/", "http://127.0.0.1?@hooks.example/",
        "http://127.0.0.1:+80/", "http://127.0.0.1:８０/", "http://[::1]/", "http://[0:0:0:0:0:0:0:1]/",
        "http://[0000:0000:0000:0000:0000:0000:0000:0001]/", "http://[::0001]:80/", "http://[::127.0.0.1]/",
        "http://[::ffff:127.0.0.1]/", "http://[::FFFF:7F00:1]/", "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://[::ffff:0:127.0.0.1]/", "http://[64:ff9b::127.0.0.1]/", "http://[2002:7f00:1::]/",
        "HTTP://127.0.0.1/", "hTtPs://127.0.0.1/", "https://127.0.0.1", "http://127.0.0.1/../..//",
    ],
    "url": [
        "http://0177.0.0.1/", "http://0177.0.0.01/", "http://127.000.000.001/", "http://256.256.256.256/",
        "http://00000000000000000000177.0.0.1/", "http://0251.0376.0251.0376/", "http://127.0.0.1../",
        "http://①②⑦.⓪.⓪.①/", "http://①②⑦。⓪。⓪。①/", "http://１２７.０.０.１/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
        "http://ｌｏｃａｌｈｏｓｔ/", "http://٠x7f000001/", "http://loc%61lhost/", "http://127%2e0%2e0%2e1/",
        "http://%6c%6f%63%61%6c%68%6f%73%74/", "http://127.0.0.1%00.hooks.example/", "http://127.0.0.1%2f@h.example/",
        "http://127.0.0.1%23.hooks.example/", "http://user@127.0.0.1/", "http://hooks.example@127.0.0.1/",
        "http://hooks.example:80@127.0.0.1:22/", "http://a.example@b.example@127.0.0.1/", "http://127.0.0.1@h.example/",
        "http://:@127.0.0.1/", "http://h.example\\@127.0.0.1/", "http://127.0.0.1\\@h.example/",
        "http://127.0.0.1\\.h.example/", "http://127.0.0.1:80\\@h.example:80/", "http:\\\\127.0.0.1\\",
        "http:/127.0.0.1/", "http:127.0.0.1/", "http:///127.0.0.1/", "http:////127.0.0.1/", "//127.0.0.1/",
        "127.0.0.1", "localhost", "http://127.0.0.1:0/", "http://127.0.0.1:65536/", "http://127.0.0.1:-80/",
        "http://127.0.0.1:80:80/", "http://127.0.0.1 /", "http:// 127.0.0.1/", " http://127.0.0.1/",
        "http://127.0.0.1\t/", "http://127.0.0.1\r\nHost: x/", "http://127.0.0.1\0/", "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/", "http://[::1%lo]/", "http://[::1/", "http://::1/", "http://[127.0.0.1]/",
        "http://[v1.127]/", "http://[::ffff:0177.0.0.1]/", "file:///etc/passwd", "ftp://127.0.0.1/",
        "gopher://127.0.0.1:70/_x", "dict://127.0.0.1/", "unix:///var/run/docker.sock", "ws://127.0.0.1/",
        "javascript:alert(1)", "data:text/plain,x", "jar:http://127.0.0.1!/", "url:http://127.0.0.1/",
        "http://", "https://", "http://?x", "", "http://.127.0.0.1/", "http://..localhost/", "http://localhost%/",
        "http://127.0.0.1;h.example/", "http://127.0.0.1,h.example/", "http://{127.0.0.1}/", 'http://"127.0.0.1"/',
        "http://local\u00adhost\u200b/", "http://127.0.0.1\u2044@h.example/", "http://\ud800/",
    ],
    "name": [
        "http://127.0.0.1./", "http://127.1./", "http://4294967296/", "http://99999999999/",
        "http://127.0.0.1.1/", "http://-1/", "http://xn--/", "http://xn--0/", "http://xn--lcalhost-x2a/",
    ],
    "": [
        "http://8.8.8.8/", "http://134744072/", "http://0x08080808/", "http://8.8.2056/",
        "http://[2606:4700:4700::1111]/", "http://[2606:4700:4700:0:0:0:0:1111]/", "http://[2606:4700:4700::ABCD]/",
    ],
}  # fmt: skip
URLS = {url: reason for reason, urls in SPELLINGS.items() for url in urls}


async def numbers(host: str, port: int) -> Sequence[str]:
    """The machine's own resolver, for numbers and what is in its hosts file: no question leaves the machine."""
    # Whether a resolver looks up `localhost.` in its hosts file or asks a server is its own choice.
    host = "localhost" if host == "localhost." else host
    flags = 0 if host == "localhost" else socket.AI_NUMERICHOST
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for *_, address in found]


async def outcomes(urls: list[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What saving and what calling each URL gave, and the addresses that were dialled."""
    dialled: list[str] = []

    async def dial(make: Any, address: str, port: int, tls: Any, name: Any) -> Any:
        dialled.append(address)
        raise OSError("this is only a list")

    egress = Egress(resolver=numbers)
    client = Fetcher(egress, dial=dial)
    saved: dict[str, str] = {}
    called: dict[str, str] = {}
    for url in urls:
        saved[url] = called[url] = ""
        try:
            await egress.check(url)
        except Unreachable as error:
            saved[url] = error.reason
        try:
            await client.post(url, b"x", [])
        except Unreachable as error:
            called[url] = error.reason
    await client.close()
    return saved, called, dialled


def test_the_tables_are_large_enough() -> None:
    assert len(ADDRESSES) - len(VERDICTS[""]) >= 120
    assert len(URLS) - len(SPELLINGS[""]) >= 60
    assert len(ADDRESSES) == sum(map(len, VERDICTS.values()))
    assert len(URLS) == sum(map(len, SPELLINGS.values()))


def test_addresses() -> None:
    assert {address: judge(address) for address in ADDRESSES} == ADDRESSES


LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@LOOPS
def test_addresses_are_refused_when_saved_and_when_dialled(loop: Any) -> None:
    plain = {a: why for a, why in ADDRESSES.items() if why != "zone id"}
    urls = {f"http://[{a}]/" if ":" in a else f"http://{a}/": why for a, why in plain.items()}
    with asyncio.Runner(loop_factory=loop) as runner:
        saved, called, dialled = runner.run(outcomes(list(urls)))
    assert saved == {url: "refused" if why else "" for url, why in urls.items()}
    assert called == {url: "refused" if why else "connect" for url, why in urls.items()}
    assert dialled == VERDICTS[""]


@LOOPS
def test_spellings(loop: Any) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        saved, called, dialled = runner.run(outcomes(list(URLS)))
    assert saved == URLS
    assert called == {url: reason or "connect" for url, reason in URLS.items()}
    assert [address for address in dialled if judge(address)] == []
    assert len(dialled) == len(SPELLINGS[""])
