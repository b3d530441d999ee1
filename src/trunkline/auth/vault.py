"""Secrets at rest: sealed with AES-GCM, under a key that is set or lies in a private file by the database."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trunkline.clock import random_bits, random_bytes
from trunkline.config import Secret, Settings
from trunkline.errors import Misuse
from trunkline.store.url import database_file

_KEY_BYTES = 32
_NONCE_BYTES = 12
_SHORTEST = 16
_ABOUT = b"trunkline vault 1"
_LONGEST_TOKEN = 4096
_URL_SAFE = str.maketrans("+/", "-_")
_PLAIN = str.maketrans("-_", "+/")


class Vault:
    """Seals texts and opens them again; what a text is about is bound to it and cannot be swapped."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, text: str, about: str) -> str:
        """The text for the store: nobody reads or alters it without the key."""
        nonce = random_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), about.encode())).decode()

    def open(self, sealed: str, about: str) -> str:
        """The text that was sealed.

        Raises:
            Misuse: it was sealed under another key or about something else, or it is damaged.
        """
        try:
            raw = base64.b64decode(sealed, validate=True)
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], about.encode()).decode()
        except (InvalidTag, ValueError):
            raise Misuse(
                f"what is sealed about {about} cannot be opened: it needs the secret_key, or the file "
                "beside the database, that it was sealed with"
            ) from None

    def seal_token(self, text: str, about: str) -> str:
        """The text for a URL or a cookie, which somebody else keeps."""
        return self.seal(text, about).translate(_URL_SAFE).rstrip("=")

    def open_token(self, token: str, about: str) -> str | None:
        """The text of such a token; None if it is none of ours, for whatever reason."""
        if len(token) > _LONGEST_TOKEN:
            return None
        try:
            return self.open(token.translate(_PLAIN) + "=" * (-len(token) % 4), about)
        except Misuse:
            return None


def can_seal(settings: Settings) -> bool:
    """Whether there is a place for the key of a vault; `find_key` looks there, or makes one."""
    own = settings.store == "memory:" or database_file(settings.store) is not None
    return settings.secret_key is not None or own


def find_key(settings: Settings) -> bytes | None:
    """The key of the vault; None where no place is safe for one: a shared database and no `secret_key`.

    Raises:
        Misuse: the setting is too short, or the file cannot be used; the message names the fix.
    """
    if settings.secret_key is not None:
        return _derived(secret_material(settings.secret_key))
    if settings.store == "memory:":
        return random_bytes(_KEY_BYTES)
    database = database_file(settings.store)
    return None if database is None else _derived(_from_file(f"{database}.key"))


def secret_material(secret: Secret) -> bytes:
    """The bytes that a key is derived from.

    Raises:
        Misuse: they are too few.
    """
    text = secret.reveal().strip()
    if len(text) < _SHORTEST:
        raise Misuse(
            f"secret_key must have at least {_SHORTEST} characters; openssl rand -base64 32 makes one"
        )
    return _decoded(text) or text.encode()


def _decoded(text: str) -> bytes | None:
    """32 bytes in base64, if that is what the text is."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == _KEY_BYTES else None


def _derived(material: bytes) -> bytes:
    return HKDF(SHA256(), _KEY_BYTES, salt=None, info=_ABOUT).derive(material)


def _from_file(path: str) -> bytes:
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}; or set secret_key") from None
    try:
        _make(path)
        return _read(path)
    except OSError as error:
        raise Misuse(f"{path} cannot be made: {error.strerror}; or set secret_key") from None


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        text = os.read(fd, 1024)
    finally:
        os.close(fd)
    if mode & 0o077:
        raise Misuse(f"others may read {path}, which holds the key of what is sealed: chmod 600 {path}")
    raw = _decoded(text.decode("ascii", "replace").strip())
    if raw is None:
        raise Misuse(f"{path} holds no key: bring it back from a copy of the database, or set secret_key")
    return raw


def _make(path: str) -> None:
    """A file that is whole when it appears; where two make one, the first counts for both."""
    part = f"{path}.{random_bits(64):016x}"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(fd, base64.b64encode(random_bytes(_KEY_BYTES)) + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        os.unlink(part)
