"""What a skill is called as a tool: `a2a__<agent>__<skill>`; an agent without skills is `a2a__<agent>`.

A name depends on the agents and their skills, never on the order in which they are given: it is the same
today and after a restart. It fits what every model takes: 64 characters of `[a-z0-9_]`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

from trunkline.errors import Misuse

LENGTH_LIMIT = 64
_TAIL = 8
_OTHER = re.compile("[^a-z0-9]+")
_PREFIX = re.compile("[a-zA-Z0-9_-]{0,24}")


class NamedAgent(Struct, frozen=True):
    """Whose a tool is: the agent by name and by address, and the skill."""

    agent: str
    url: str
    skill: str

    @property
    def tail(self) -> str:
        """What tells it from others of the same name."""
        told = "\n".join((self.url, self.agent, self.skill))
        return sha256(told.encode()).hexdigest()[:_TAIL]


def plain(name: str) -> str:
    """A name in small letters, digits and single underscores; one that has none of them gives its digest."""
    folded = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return _OTHER.sub("_", folded.lower()).strip("_") or "x" + sha256(name.encode()).hexdigest()[:_TAIL]


def names_of(owners: Sequence[NamedAgent], prefix: str = "a2a") -> tuple[str, ...]:
    """The names of tools, in the order of their owners.

    Raises:
        Misuse: the prefix does not fit, or the same skill of the same agent is given twice.
    """
    if not _PREFIX.fullmatch(prefix):
        raise Misuse(f"prefix is at most 24 of the characters a-z, A-Z, 0-9, _ and -, not {prefix!r}")
    front = f"{prefix}__" if prefix else ""
    bare = [front + "__".join(map(plain, filter(None, (one.agent or "agent", one.skill)))) for one in owners]
    shared = Counter(bare)
    names = [
        _with_tail(name, owner.tail) if shared[name] > 1 or len(name) > LENGTH_LIMIT else name
        for name, owner in zip(bare, owners, strict=True)
    ]
    for name, count in Counter(names).items():
        if count > 1:
            twice = owners[names.index(name)]
            raise Misuse(
                f"skill {twice.skill!r} of agent {twice.agent!r} at {twice.url} is given {count} times; "
                "give the agents as a mapping from a name of your own to each"
            )
    return tuple(names)


def _with_tail(name: str, tail: str) -> str:
    return f"{name[: LENGTH_LIMIT - _TAIL - 1].rstrip('_')}_{tail}"
