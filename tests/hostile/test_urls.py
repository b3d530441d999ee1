"""Where a webhook may go, asked with URLs put together at random: taken apart or refused by name, nothing else."""

from __future__ import annotations

import os
import random
from collections import Counter

from trunkline.errors import Unreachable
from trunkline.net.egress import target

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
COUNT = 10_000
STARTS = [
    "http://",
    "https://",
    "HTTP://",
    "ftp://",
    "//",
    "http:/",
    "http:",
    "h ttp://",
    "",
    "javascript:",
    "http:\\\\",
]
HOSTS = [
    "a.example", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "[fe80::1%\u00e4]", "0x7f.1", "2130706433", "127.1",
    "ex\u00e4mple.org", "\u2488.com", "xn--", "xn--a", "a..b", "-a", "a_b", "[::1", "::1", "%31%32%37.0.0.1", "a" * 70, "a." * 130,
    "\uff11\uff12\uff17.0.0.1", "localhost.", "LOCALHOST", "", "@", "u:p@h", "[v1.x]", "[1:2:3]", "h\u00adost", "\u202eevil", "\ud800",
    "a\tb", "a b", "\u0130", "\u00df.de", "xn--\u00e4",
]  # fmt: skip
ENDS = [
    "", ":80", ":0", ":65536", ":99999999999", ":-1", ":8a", ":", "/", "/p", "?q", "#f", "/../..", "/%00", "/%zz", "\\x", "/\u00e4", "/ ",
    "@evil", "?\u2028", "/" + "x" * 3000, "/\ud800", ";", "/%E0%A4%A",
]  # fmt: skip
STRANGERS = "\0\t\n\r %/:@[]\\\x7f\x85\xad\u0130\u200b\u2028\uff0e\U0001f600\ud800"


def test_a_url_is_taken_apart_or_refused() -> None:
    print(f"seed {SEED}: set TRUNKLINE_TEST_SEED for another one")
    chance = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    for _ in range(COUNT):
        url = chance.choice(STARTS) + chance.choice(HOSTS) + chance.choice(ENDS) + chance.choice(["", *ENDS])
        if chance.random() < 0.3:
            place = chance.randrange(len(url) + 1)
            url = url[:place] + chance.choice(STRANGERS) + url[place:]
        try:
            found = target(url)
        except Unreachable as refused:
            # Not repeated: it may hold credentials.
            assert refused.reason == "url" and len(str(refused)) < 200
            outcomes["refused"] += 1
        else:
            assert found.scheme in ("http", "https") and found.host and 0 < found.port < 65536
            assert found.host.isascii() and found.authority.isascii() and found.path.isascii()
            assert not set(b"\0\t\n\r ") & set(found.authority + found.path), url
            outcomes["read"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > COUNT // 100, outcomes
