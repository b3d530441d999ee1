"""`trunkline auth login`: a real authorization server on loopback, tokens kept and shown to the agent."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from tests.cli.test_send import fields
from trunkline.cli import login
from trunkline.cli.oauth import KeptToken, TokenFile, origin_of
from trunkline.errors import Misuse

Make = Callable[..., Scripted]
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


class Authority:
    """An authorization server: `waits` is how often a device has to ask."""

    def __init__(self, peer: Scripted, *, waits: int = 1) -> None:
        self.forms: list[dict[str, str]] = []
        self.valid: set[str] = set()
        self.waits = waits
        self.expires_in = 3600
        self.refusal = ""
        self.url = peer.url
        peer.routes["/device"] = self._device
        peer.routes["/token"] = self._token

    def flows(self, *names: str) -> dict[str, Any]:
        known = {
            "deviceCode": {
                "deviceAuthorizationUrl": f"{self.url}/device",
                "tokenUrl": f"{self.url}/token",
                "scopes": {"tasks": "all"},
            },
            "clientCredentials": {"tokenUrl": f"{self.url}/token", "scopes": {"tasks": "all"}},
        }
        return {"o": {"oauth2SecurityScheme": {"flows": {name: known[name] for name in names}}}}

    def _device(self, _: dict[str, str], body: bytes) -> tuple[int, Any]:
        self.forms.append(_form(body))
        return 200, {
            "device_code": "dc-1",
            "user_code": "WDJB-MJHT",
            "verification_uri": "https://example.com/device",
            "expires_in": 60,
            "interval": 0.05,
        }

    def _token(self, _: dict[str, str], body: bytes) -> tuple[int, Any]:
        form = _form(body)
        self.forms.append(form)
        if self.refusal:
            return 400, {"error": self.refusal}
        if form["grant_type"] == DEVICE and self.waits:
            self.waits -= 1
            return 400, {"error": "authorization_pending"}
        if form["grant_type"] == "client_credentials" and form["client_secret"] != "right":
            return 401, {"error": "invalid_client", "error_description": "wrong secret"}
        token = f"token-{len(self.forms)}"
        self.valid.add(f"Bearer {token}")
        more = {} if form["grant_type"] == "client_credentials" else {"refresh_token": "again-1"}
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in, **more}


def _form(body: bytes) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(body.decode()).items()}


@pytest.fixture
def both(scripted: Make) -> tuple[Scripted, Authority]:
    peer = scripted()
    authority = Authority(scripted())
    peer.card["securitySchemes"] = authority.flows("deviceCode", "clientCredentials")
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    return peer, authority


def shown(peer: Scripted) -> str | None:
    return [headers.get("authorization") for name, _, headers in peer.asked if name == "SendMessage"][-1]


def test_a_device_login_is_kept_and_used(
    trunkline: Run, both: tuple[Scripted, Authority], tmp_path: Path
) -> None:
    peer, authority = both
    code, out, err = trunkline("auth", "login", peer.url, "--client-id", "cli")
    assert code == 0
    assert "Open: https://example.com/device" in err and "Code: WDJB-MJHT" in err
    assert fields(out)["Flow"] == "device"
    assert [form.get("grant_type") for form in authority.forms] == [None, DEVICE, DEVICE]
    assert authority.forms[0] == {"client_id": "cli", "scope": "tasks"}
    file = tmp_path / "home/.config/a2a-cli/tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert fields(out)["Kept"] == str(file)
    assert "token-3" not in out + err
    trunkline("send", peer.url, "hi")
    assert shown(peer) == "Bearer token-3" and shown(peer) in authority.valid
    assert f"login: {peer.url}" in trunkline("config", "show")[1]
    assert "token-3" not in trunkline("config", "show")[1]


def test_a_client_login_is_kept_and_renewed_with_the_secret(
    trunkline: Run, both: tuple[Scripted, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, authority = both
    authority.expires_in = 1
    monkeypatch.setenv("A2ACLI_CLIENT_ID", "machine")
    monkeypatch.setenv("A2ACLI_CLIENT_SECRET", "right")
    words = ("auth", "login", "-a", peer.url, "--flow", "client", "--scope", "a", "--scope", "b")
    words = (*words, "--token-url", f"{authority.url}/token")
    code, out, _ = trunkline(*words, "-o", "json")
    assert (code, json.loads(out)["flow"]) == (0, "client")
    assert authority.forms[0]["scope"] == "a b"
    # It has run out already, as one that lasts a second always has.
    trunkline("send", peer.url, "hi")
    assert (len(authority.forms), shown(peer)) == (2, "Bearer token-2")


def test_a_device_login_is_renewed_by_its_refresh_token(
    trunkline: Run, both: tuple[Scripted, Authority]
) -> None:
    peer, authority = both
    authority.expires_in = 1
    trunkline("auth", "login", peer.url, "--client-id", "cli")
    authority.expires_in = 3600
    trunkline("send", peer.url, "hi")
    trunkline("send", peer.url, "hi")
    assert authority.forms[-1] == {
        "grant_type": "refresh_token",
        "refresh_token": "again-1",
        "client_id": "cli",
    }
    assert len(authority.forms) == 4 and shown(peer) == "Bearer token-4"


def test_a_token_that_has_run_out_for_good_says_to_log_in(
    trunkline: Run, both: tuple[Scripted, Authority]
) -> None:
    peer, _ = both
    trunkline("card", peer.url)
    TokenFile().keep(peer.url, KeptToken("old", f"{peer.url}/token", "cli", "device", expires_ms=1))
    code, out, _ = trunkline("send", peer.url, "hi", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert error["hint"] == f"trunkline auth login -a {peer.url}"


def test_what_is_given_beats_what_is_kept(trunkline: Run, both: tuple[Scripted, Authority]) -> None:
    peer, _ = both
    trunkline("auth", "login", peer.url, "--client-id", "cli")
    trunkline("send", peer.url, "hi", "--bearer", "mine")
    assert shown(peer) == "Bearer mine"


def test_a_token_goes_to_its_own_origin_only(trunkline: Run, both: tuple[Scripted, Authority]) -> None:
    peer, _ = both
    trunkline("auth", "login", peer.url, "--client-id", "cli")
    other = peer.url.replace("127.0.0.1", "localhost")
    trunkline("send", other, "hi")
    assert shown(peer) is None


def test_logout_forgets(trunkline: Run, both: tuple[Scripted, Authority]) -> None:
    peer, _ = both
    trunkline("auth", "login", peer.url, "--client-id", "cli")
    assert fields(trunkline("auth", "logout", peer.url)[1])["Forgotten"] == "yes"
    assert fields(trunkline("auth", "logout", peer.url)[1])["Forgotten"] == "there was none"
    trunkline("send", peer.url, "hi")
    assert shown(peer) is None


@pytest.mark.parametrize(
    ("refusal", "words", "code", "says"),
    [
        ("access_denied", (), 4, "access_denied"),
        ("expired_token", (), 4, "expired_token"),
        ("", ("--flow", "client", "--client-secret", "wrong", "--token-url", "URL/token"), 4, "wrong secret"),
        ("", ("--flow", "client"), 2, "A2ACLI_CLIENT_SECRET"),
    ],
)
def test_a_login_that_fails(
    trunkline: Run, both: tuple[Scripted, Authority],
    refusal: str, words: tuple[str, ...], code: int, says: str,
) -> None:  # fmt: skip
    peer, authority = both
    authority.refusal = refusal
    words = tuple(word.replace("URL", authority.url) for word in words)
    ended, out, _ = trunkline("auth", "login", peer.url, "--client-id", "cli", *words, "-o", "json")
    assert ended == code
    assert says in json.loads(out)["error"]["message"]
    assert not TokenFile().has(peer.url)


def test_nobody_approves_in_time(trunkline: Run, both: tuple[Scripted, Authority]) -> None:
    peer, authority = both
    authority.waits = 10**6
    words = ("--client-id", "cli", "--timeout", "300ms", "-o", "json")
    code, out, _ = trunkline("auth", "login", peer.url, *words)
    assert (code, json.loads(out)["error"]["code"]) == (5, "A2ACLI_ERR_TIMEOUT")


def test_a_card_without_a_flow(trunkline: Run, scripted: Make) -> None:
    code, _, err = trunkline("auth", "login", scripted().url, "--client-id", "cli")
    assert code == 2
    assert "A2ACLI_BEARER" in err


def test_no_secret_goes_in_the_clear_to_another_machine(
    trunkline: Run, both: tuple[Scripted, Authority]
) -> None:
    peer, _ = both
    flows = {"clientCredentials": {"tokenUrl": "http://login.example/token", "scopes": {}}}
    peer.card["securitySchemes"] = {"o": {"oauth2SecurityScheme": {"flows": flows}}}
    words = ("--client-id", "cli", "--client-secret", "right", "--token-url", "http://login.example/token")
    code, _, err = trunkline("auth", "login", peer.url, *words)
    assert code == 2
    assert "not https" in err


def test_the_wire_of_a_login_shows_no_secret(trunkline: Run, both: tuple[Scripted, Authority]) -> None:
    peer, authority = both
    words = ("--client-id", "cli", "--client-secret", "right", "--flow", "client", "--debug")
    words = (*words, "--token-url", f"{authority.url}/token")
    code, _, err = trunkline("auth", "login", peer.url, *words)
    assert code == 0
    assert "client_secret=***" in err and '"access_token": "***"' in err


def test_a_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    tokens.keep("https://a.example/x", KeptToken("t", "https://a.example/token", "c", "device"))
    tokens.path.chmod(0o644)
    with pytest.raises(Misuse, match="chmod 600"):
        tokens.has("https://a.example")


def test_origins() -> None:
    assert origin_of("https://user@Agent.example:8443/path?q") == "https://agent.example:8443"


LOGIN = ("--client-id", "cli", "--client-secret", "right", "--flow", "client")


def test_in_a_pipe_a_card_cannot_send_the_secret_to_another_origin(
    trunkline: Run, both: tuple[Scripted, Authority], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peer, authority = both
    code, _, err = trunkline("auth", "login", peer.url, *LOGIN)
    assert code == 2 and authority.forms == []
    assert f"--token-url {authority.url}/token" in err and peer.url in err
    # Nor does a variable or a file that was found say where it goes.
    monkeypatch.setenv("A2ACLI_TOKEN_URL", f"{authority.url}/token")
    (tmp_path / ".env").write_text(f"A2ACLI_TOKEN_URL={authority.url}/token\n")
    assert trunkline("auth", "login", peer.url, *LOGIN)[0] == 2 and authority.forms == []
    assert trunkline("auth", "login", peer.url, *LOGIN, "--token-url", f"{authority.url}/token")[0] == 0
    assert TokenFile().has(peer.url)


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("YES\n", 0), ("\n", 2), ("n\n", 2), ("", 2)])
def test_on_a_terminal_a_person_says_whether_the_secret_goes_to_another_origin(
    trunkline: Run, both: tuple[Scripted, Authority], monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    peer, authority = both
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(login, "_is_terminal", lambda: True)
    ended, _, err = trunkline("auth", "login", peer.url, *LOGIN)
    assert (ended, len(authority.forms)) == (code, int(code == 0))
    assert f"{authority.url}/token" in err and "Send it there? [y/N]" in err


def test_the_secret_goes_to_the_agents_own_origin_without_a_word(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    authority = Authority(peer)
    peer.card["securitySchemes"] = authority.flows("clientCredentials")
    assert trunkline("auth", "login", peer.url, *LOGIN)[0] == 0
    assert len(authority.forms) == 1
