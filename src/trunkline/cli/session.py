"""One command's dealings with one agent: who it is, the client, what is known of it so far."""

from __future__ import annotations

import asyncio
import shlex
from urllib.parse import quote

from trunkline import errors as e
from trunkline.cli.access import (
    at_home,
    bindings_of,
    caller_for,
    check_insecure,
    credentials_of,
    parameters_of,
    version_of,
)
from trunkline.cli.choices import Choices
from trunkline.cli.commands.client import Given
from trunkline.cli.reference import Reference, named, named_alone, refer
from trunkline.cli.screen import remark
from trunkline.cli.tokens import TokenFile
from trunkline.cli.wire_trace import Redaction, WireTrace
from trunkline.client.client import Client
from trunkline.config import Secret
from trunkline.net.http import HttpClient
from trunkline.wire.peer_card import PeerCard


class Session:
    """What a command works with. `task_id` is noted as soon as it is known, for whoever is interrupted."""

    def __init__(self, given: Given, choices: Choices, *, alone: bool, kept: bool = True) -> None:
        self.given = given
        self._keeps = kept
        self.choices = choices
        self.task_id = ""
        self.message_id = ""
        self.finding = True
        self.credentials = False
        # Whether there is a token of an earlier login, good or not.
        self.logged_in = False
        self.known_card: PeerCard | None = None
        if alone:
            self.told, self.words = named_alone(given.words, given.flags, choices), ()
        else:
            self.told, self.words = named(given.words, given.flags, choices)
        self.choices = at_home(choices, typed=len(self.words) < len(given.words))
        self._client: Client | None = None
        self._tap: HttpClient | None = None
        self._reference: Reference | None = None

    @property
    def reference(self) -> Reference:
        """Where the agent is."""
        if self._reference is None:
            self._reference = refer(self.told)
        return self._reference

    @property
    def client(self) -> Client:
        """The client; there is one while the command runs."""
        assert self._client is not None
        return self._client

    async def card(self) -> PeerCard:
        """The agent's card, looked for once; where there is none, what follows fails as `finding`."""
        if self.known_card is None:
            self.known_card = await self._found()
            self.finding = False
        return self.known_card

    async def spoken_card(self) -> PeerCard:
        """The card of an agent that speaks the version that is wanted.

        Raises:
            VersionNotSupported: it does not; an older one is never spoken unless that is told.
        """
        card = await self.card()
        wanted = version_of(self.choices.text("a2a-version"))
        offered = sorted({each.version for each in card.interfaces if each.version})
        if offered and not any(version_of(each) == wanted for each in offered):
            raise e.VersionNotSupported(
                f"the agent speaks {', '.join(offered)}, and not {wanted}; say so with --a2a-version"
            )
        return card

    async def _found(self) -> PeerCard:
        seconds = self.choices.seconds("timeout")
        try:
            async with asyncio.timeout(seconds):
                return await self.client.card()
        except TimeoutError:
            raise e.TimedOut(f"no card within {seconds:g} seconds", reason="total") from None
        except e.RouteNotFound:
            if not self.choices.items("transport"):
                raise
            # Who says how to speak to it needs no card; without one it is not known to stream.
            remark("Warning", "there is no card; it is spoken to as --transport says")
            return PeerCard(name="")

    @property
    def explanation(self) -> tuple[str, ...]:
        """How the way to the agent was chosen."""
        return () if self._client is None else self._client.explanation

    def word(self, what: str) -> str:
        """The one word that a command wants beside the agent.

        Raises:
            Misuse: it is missing, or there are more.
        """
        if len(self.words) != 1:
            raise e.Misuse(f"give {what}, and name the agent by its whole URL first or by -a")
        return self.words[0]

    def command(self, *words: str) -> str:
        """A command for this agent that can be copied."""
        first, *rest = words
        text = shlex.join(["trunkline", *first.split(), "-a", self.told, *rest])
        # Ids are the agent's; what a terminal would act on is spelled out.
        return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])

    async def open(self) -> None:
        """Make the client."""
        choices = self.choices
        reference = self.reference
        headers = parameters_of(choices)
        bearer, api_key = credentials_of(choices)
        check_insecure(choices, logged_in=self._keeps and TokenFile().has(reference.url))
        if bearer is None and api_key is None and self._keeps:
            bearer = await self._kept(reference)
        self.credentials = bearer is not None or api_key is not None
        if choices.flag("insecure"):
            risk = "; the credential can be read by whoever answers" if self.credentials else ""
            remark("Warning", f"--insecure: TLS certificates are not checked{risk}")
        known = [one.reveal() for one in (bearer, api_key) if one is not None]
        # As a key looks in a URL.
        known += [quote(one, safe="") for one in known]
        self._tap = self._carrier(reference, Redaction(known, headers))
        version = version_of(choices.text("a2a-version"))
        if version.startswith("0"):
            # 0.3 itself has no such header; but the contract wants it said, and here it was asked for.
            headers = {"A2A-Version": version, **headers}
        self._client = Client(
            reference.url,
            bearer=bearer or "",
            api_key=api_key or "",
            headers=headers,
            version=version,
            bindings=bindings_of(choices.items("transport")),
            card=reference.card,
            timeout_s=choices.seconds("timeout"),
            poll_s=choices.seconds("poll-interval"),
            verify_tls=not choices.flag("insecure"),
            carrier=self._tap,
        )

    async def close(self) -> None:
        """Let go of what was opened."""
        if self._client is not None:
            await self._client.close()
        if self._tap is not None:
            await self._tap.close()

    async def _kept(self, reference: Reference) -> Secret | None:
        """The token of an earlier `auth login`, made fresh where it is stale."""
        tokens = TokenFile()
        self.logged_in = tokens.has(reference.url)
        if not self.logged_in:
            return None
        carrier = self._carrier(reference, Redaction([])) or caller_for(reference, self.choices)
        seconds = self.choices.seconds("timeout")
        try:
            async with asyncio.timeout(seconds):
                return await tokens.fresh(reference.url, carrier, self.choices.secret("client-secret"))
        except TimeoutError:
            raise e.TimedOut(f"no token within {seconds:g} seconds", reason="total") from None
        finally:
            await carrier.close()

    def _carrier(self, reference: Reference, redaction: Redaction) -> HttpClient | None:
        """One that shows the wire; None leaves it to the client."""
        return (
            WireTrace(caller_for(reference, self.choices), redaction) if self.choices.flag("debug") else None
        )
