"""Which addresses may be dialled. Pure, and the same on every Python: the library's own flags are not.

Anything that is not plain public unicast is refused, and so is every IPv6 form that carries an IPv4 address:
a translator on the way would take it to where the IPv4 table forbids to go.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

# The first network that holds an address says what it is, so the narrow ones stand first.
_TABLE = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.100.100.200/32": "metadata",
    "100.64.0.0/10": "carrier-grade NAT",
    "127.0.0.0/8": "loopback",
    # A public number that clouds route to the machine beneath.
    "168.63.129.16/32": "metadata",
    "169.254.169.254/32": "metadata",
    "169.254.170.0/24": "metadata",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.192/32": "metadata",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "AS112",
    "192.52.193.0/24": "AMT",
    "192.88.99.0/24": "6to4",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "AS112",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "reserved",
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "v4-mapped",
    "::ffff:0:0:0/96": "v4-translated",
    "::/96": "v4-compatible",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "NAT64",
    "100::/64": "discard",
    "2001::/32": "Teredo",
    "2001:2::/48": "benchmarking",
    "2001:3::/32": "AMT",
    "2001:4:112::/48": "AS112",
    "2001:10::/28": "ORCHID",
    "2001:20::/28": "ORCHID",
    "2001::/23": "reserved",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "2620:4f:8000::/48": "AS112",
    "3ffe::/16": "reserved",
    "3fff::/20": "documentation",
    "5f00::/16": "SRv6",
    "fd00:ec2::254/128": "metadata",
    "fd20:ce::254/128": "metadata",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
    # Of all IPv6 only 2000::/3 is given out; these three are the rest.
    "::/3": "reserved",
    "4000::/2": "reserved",
    "8000::/1": "reserved",
}
_RANGES = [
    (network.version, int(network.network_address), int(network.broadcast_address), why)
    for network, why in ((ip_network(text), why) for text, why in _TABLE.items())
]


def judge(address: str) -> str:
    """Why this address may not be dialled, in a word or two; empty if it may."""
    if "%" in address:
        return "zone id"
    try:
        found = ip_address(address)
    except ValueError:
        return "malformed"
    number = int(found)
    for version, low, high, why in _RANGES:
        if low <= number <= high and version == found.version:
            return why
    return ""
