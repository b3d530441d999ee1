"""The files of a caller as a model reads them: within a bound, of a type that the model takes, or refused.

Text is told as text, which every model reads. Of anything else the profile of the model says whether it is.
"""

from __future__ import annotations

import base64
import binascii
from mimetypes import guess_type

from msgspec import Struct
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models import Model
from pydantic_ai.profiles import ModelProfile

from trunkline.bridge.outcome import standard_base64
from trunkline.errors import ContentTypeNotSupported, InvalidParams, Refused, TooLarge
from trunkline.wire.types import Part

FILES_LIMIT = 16
# In a message that nobody answers any more, in the place of what is not told again.
_LEFT_OUT = "[a file that is left out here: {}]"
_TEXTS = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/toml", "application/javascript"}
)
_NAME_SHOWN = 200
FileContent = str | BinaryContent


class FetchedFile(Struct, frozen=True):
    """A file that was fetched from its address, as it is recorded; `fault` says why it was not."""

    media_type: str = ""
    raw: str = ""
    fault: str = ""


def is_file(part: Part) -> bool:
    """Whether a part is a file, by content or by address."""
    return part.raw is not None or part.url is not None


def input_modes(model: Model) -> tuple[str, ...]:
    """The media types beyond text that a model reads, as a card shows them."""
    profile = model.profile
    families = [
        ("image/*", profile.get("supports_image_input", True)),
        ("audio/*", profile.get("supports_audio_file_input", True)),
        ("video/*", profile.get("supports_video_input", True)),
        ("application/pdf", _takes_document("application/pdf", profile)),
    ]
    return tuple([mode for mode, is_read in families if is_read])


class CallerFiles:
    """The files of one conversation; `limit` is for the bytes of all that are told."""

    def __init__(self, model: Model, limit: int) -> None:
        self._profile = model.profile
        self._limit = limit
        self._left = limit
        self._count = 0

    @property
    def left(self) -> int:
        """How many bytes may still be told."""
        return self._left

    def read(self, part: Part, place: str) -> FileContent:
        """A file of the message that is to be answered; `place` is where it stands.

        Raises:
            ContentTypeNotSupported: the model does not read its type.
            TooLarge: it is too large, or there are too many.
            InvalidParams: it is no base64.
        """
        kind = _media_type(part)
        self._count += 1
        if self._count > FILES_LIMIT:
            raise TooLarge(f"{place}: at most {FILES_LIMIT} files are read at once", field=place)
        try:
            body = base64.b64decode(standard_base64(part.raw or ""), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidParams(f"{place}: raw is no base64", field=place) from None
        if len(body) > self._left:
            raise TooLarge(f"{place}: files of one message have at most {self._limit} bytes", field=place)
        content = self._content(part, kind, body)
        if content is None:
            what = (
                "text that is no UTF-8"
                if _is_text(kind)
                else kind or "a file that does not say its mediaType"
            )
            raise ContentTypeNotSupported(f"{place}: this agent does not read {what}", field=place)
        self._left -= len(body)
        return content

    def recall(self, part: Part) -> FileContent:
        """A file of an earlier message, if it still fits; else a word in its place."""
        try:
            if part.raw is not None:
                return self.read(part, "")
        except Refused:
            # Whoever sent it was told then.
            pass
        return _LEFT_OUT.format(_named(part) or _media_type(part) or "unnamed")

    def _content(self, part: Part, kind: str, body: bytes) -> FileContent | None:
        if _is_text(kind):
            try:
                return f"[file {_named(part) or kind}]\n{body.decode()}"
            except UnicodeDecodeError:
                return None
        content = BinaryContent(body, media_type=kind)
        try:
            # Raised for a type that no provider knows.
            is_known = bool(content.format)
        except ValueError:
            is_known = False
        return content if is_known and _takes(content, self._profile) else None


def _takes(content: BinaryContent, profile: ModelProfile) -> bool:
    if content.is_image:
        return profile.get("supports_image_input", True)
    if content.is_audio:
        return profile.get("supports_audio_file_input", True)
    if content.is_video:
        return profile.get("supports_video_input", True)
    return _takes_document(content.media_type, profile)


def _takes_document(kind: str, profile: ModelProfile) -> bool:
    known = profile.get("supported_document_media_types")
    return profile.get("supports_document_input", True) and (known is None or kind in known)


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))


def _media_type(part: Part) -> str:
    """What a file says that it is, or else what its name says."""
    said = part.media_type.partition(";")[0].strip().lower()
    return said if "/" in said else guess_type(part.filename)[0] or ""


def _named(part: Part) -> str:
    # On one line, so that it cannot be taken for anything else.
    return " ".join(part.filename.split())[:_NAME_SHOWN]
