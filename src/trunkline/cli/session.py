"""One command's dealings with one agent: who it is, the client, what is known so far, how it ends."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlsplit

import typer

from trunkline import errors as e
from trunkline.cli.choices import Choices, choose
from trunkline.cli.failure import Failure, failure_of, tell, wants_json
from trunkline.cli.hints import hint_for
from trunkline.cli.menu.client import Given
from trunkline.cli.reference import Reference, named, named_alone, refer
from trunkline.cli.screen import clear, plain, remark
from trunkline.cli.tokens import Tokens
from trunkline.cli.wiretap import Redaction, Wiretap
from trunkline.client.client import Client
from trunkline.config import Secret
from trunkline.net.caller import Caller
from trunkline.net.carrier import Carrier
from trunkline.net.guard import Egress
from trunkline.wire.peer_card import PeerCard

INTERRUPTED = 130
_BINDINGS = {
    "jsonrpc": "JSONRPC",
    "json-rpc": "JSONRPC",
    "http+json": "HTTP+JSON",
    "rest": "HTTP+JSON",
    "grpc": "GRPC",
    "delegate": "DELEGATE",
}
_FLOOR = "1.0"


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
        self._client: Client | None = None
        self._tap: Carrier | None = None
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
        wanted = _version(self.choices.text("a2a-version"))
        offered = sorted({each.version for each in card.interfaces if each.version})
        if offered and not any(_version(each) == wanted for each in offered):
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
        return shlex.join(["trunkline", *first.split(), "-a", self.told, *rest])

    async def open(self) -> None:
        """Make the client."""
        choices = self.choices
        reference = self.reference
        headers = _parameters(choices)
        bearer, api_key = _credentials(choices)
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
        self._client = Client(
            reference.url,
            bearer=bearer or "",
            api_key=api_key or "",
            headers=headers,
            version=_version(choices.text("a2a-version")),
            bindings=_bindings(choices.items("transport")),
            card=reference.card,
            timeout_s=choices.seconds("timeout"),
            idle_s=max(60.0, choices.seconds("timeout")),
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
        tokens = Tokens()
        self.logged_in = tokens.has(reference.url)
        if not self.logged_in:
            return None
        carrier = self._carrier(reference, Redaction([])) or caller_for(reference, self.choices)
        try:
            return await tokens.fresh(reference.url, carrier, self.choices.secret("client-secret"))
        finally:
            await carrier.close()

    def _carrier(self, reference: Reference, redaction: Redaction) -> Carrier | None:
        """One that shows the wire; None leaves it to the client."""
        return Wiretap(caller_for(reference, self.choices), redaction) if self.choices.flag("debug") else None


# What a command does; it may give an exit code of its own.
Work = Callable[[Session], Awaitable[int | None]]


def carry_out(given: Given, work: Work, *, alone: bool = False, kept: bool = True) -> None:
    """Run a command to its end, and leave with its exit code.

    `alone` takes no word but the agent; `kept` goes with the token of an earlier login.

    Raises:
        typer.Exit: always, if anything went wrong.
    """
    session: Session | None = None
    try:
        choices = choose(given.flags)
        _set_up(choices)
        session = Session(given, choices, alone=alone, kept=kept)
        code = asyncio.run(_run(session, work))
        clear()
    except KeyboardInterrupt:
        _say_interrupted(session)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - told with its code; with --debug whole
        raise _failed(error, session, given) from None
    if code:
        raise typer.Exit(code)


async def _run(session: Session, work: Work) -> int:
    try:
        await session.open()
        return await work(session) or 0
    finally:
        if session.choices.flag("debug"):
            for each in session.explanation:
                print(f"# {plain(each)}", file=sys.stderr)
        await session.close()


def _failed(error: Exception, session: Session | None, given: Given) -> typer.Exit:
    if session is None:
        failure = failure_of(error, finding=False, credentials=False)
        as_json = given.flags["output"] == "json" if "output" in given.flags else wants_json(())
    else:
        failure = failure_of(error, finding=session.finding, credentials=session.credentials)
        as_json = session.choices.as_json
        if session.choices.flag("debug") and not isinstance(error, e.TrunklineError):
            logging.getLogger("trunkline.cli").error("the tool failed", exc_info=error)
    hint = failure.hint or hint_for(failure, error, session)
    failure = Failure(failure.code, failure.message, hint, failure.a2a_code)
    tell(failure, as_json=as_json, compact=bool(given.flags.get("stream")))
    return typer.Exit(failure.exit)


def _say_interrupted(session: Session | None) -> None:
    clear()
    if session is not None and session.task_id:
        remark("Interrupted", f"task {session.task_id} goes on at the agent")
        print(f"Next: {session.command('task get', session.task_id, '--wait')}", file=sys.stderr)
    elif session is not None and session.message_id:
        remark("Interrupted", f"message {session.message_id} was sent; the agent may be working on it")
        print(f"Next: {session.command('task list')}", file=sys.stderr)
    else:
        remark("Interrupted", "nothing was begun")


class _Once(logging.Filter):
    """Lets every line pass once: an agent with two interfaces has the same said of each."""

    def __init__(self) -> None:
        super().__init__()
        self._said = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is new."""
        text = record.getMessage()
        fresh = text not in self._said
        self._said.add(text)
        return fresh


def _set_up(choices: Choices) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if choices.flag("debug") else logging.WARNING,
        format="# %(levelname)s %(name)s %(message)s" if choices.flag("debug") else "Warning: %(message)s",
        force=True,
    )
    logging.getLogger().handlers[0].addFilter(_Once())
    for name in ("httpcore2", "httpx2", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for path in choices.exposed:
        remark("Warning", f"{path} holds a secret, and others on this machine can read it: chmod 600 it")
    for name in choices.strangers:
        remark("Warning", f"{name} sets nothing: trunkline config show lists the names")


def caller_for(reference: Reference, choices: Choices) -> Caller:
    """A carrier to the host that was named."""
    host = urlsplit(reference.url).hostname or ""
    return Caller(Egress(hosts=[host]), verify=not choices.flag("insecure"))


def _parameters(choices: Choices) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in choices.items("svc-param"):
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise e.Misuse("--svc-param is NAME:VALUE, for example x-trace-id:abc123")
        found[name.strip()] = value.strip()
    return found


def _credentials(choices: Choices) -> tuple[Secret | None, Secret | None]:
    """A bearer token or an API key: of two, the one that was said more directly."""
    bearer, api_key = choices.of("bearer"), choices.of("api-key")
    if bearer.value is None or api_key.value is None or bearer.rank == api_key.rank:
        return bearer.value, api_key.value
    return (bearer.value, None) if bearer.rank < api_key.rank else (None, api_key.value)


def _bindings(told: tuple[str, ...]) -> tuple[str, ...]:
    names = [one.strip() for each in told for one in each.split(",") if one.strip()]
    return tuple([_BINDINGS.get(name.lower(), name) for name in names])


def _version(told: str) -> str:
    return ".".join(told.split(".")[:2]) if told.count(".") > 1 else _FLOOR if told == "1" else told
