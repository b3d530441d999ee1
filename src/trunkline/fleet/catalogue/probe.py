"""Whether an agent is at an address, as far as its card tells; within five seconds."""

from __future__ import annotations

import asyncio

from trunkline.client.discovery import Discovery
from trunkline.errors import InvalidParams, Misuse, TrunklineError, Unreachable
from trunkline.fleet.call import ApiStruct
from trunkline.fleet.catalogue.card_facts import facts_of
from trunkline.fleet.catalogue.entry import EntrySkill
from trunkline.net.egress import Egress, shown
from trunkline.net.http_client import SocketHttpClient
from trunkline.net.places import TenantPlaces
from trunkline.peer.remote import check_address

PROBE_S = 5.0
# How many are asked at once, in all and by one tenant: each holds a connection to wherever its caller likes.
AT_ONCE, BY_TENANT = 64, 32


class ProbeForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address that is asked."""

    url: str


class Probed(ApiStruct, frozen=True, kw_only=True):
    """The answer of a probe: whether an agent is there, and what its card says."""

    reachable: bool
    # Without a default, as lists are told even if they are empty.
    skills: tuple[EntrySkill, ...]
    versions: tuple[str, ...]
    card_url: str = ""
    name: str = ""
    error: str = ""


async def probe(url: str, egress: Egress, places: TenantPlaces, tenant: str) -> Probed:
    """Ask for a card at an address that somebody of a tenant names, in its turn; the egress rule holds.

    Raises:
        InvalidParams: it is no address.
    """
    try:
        check_address(url)
    except Misuse:
        raise InvalidParams("this is not an http:// or https:// address of an agent", field="url") from None
    client = SocketHttpClient(egress, connect_s=PROBE_S)
    discovery = Discovery(url, client, timeout_s=PROBE_S)
    try:
        async with asyncio.timeout(PROBE_S), places.held(tenant):
            card = await discovery.card()
    except TimeoutError:
        return _without_card(f"no card within {PROBE_S:g} seconds")
    except Unreachable as error:
        return _without_card(str(error)[:1000])
    except TrunklineError as error:
        # Somebody is there, but no card is.
        return _without_card(str(error)[:1000], reachable=True)
    finally:
        await client.close()
    facts = facts_of(card, url, 0)
    return Probed(
        reachable=True,
        card_url=shown(discovery.found_at),
        name=card.name[:256],
        skills=facts.skills,
        versions=facts.versions,
    )


def _without_card(error: str, *, reachable: bool = False) -> Probed:
    return Probed(reachable=reachable, skills=(), versions=(), error=error)
