"""Keys that an operator's configuration refers to and never holds: `env:NAME`, `file:relative/path`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from trunkline.config import Secret, environment
from trunkline.errors import Misuse

_LONGEST_BYTES = 64 * 1024


class KeyReference(Struct, frozen=True):
    """Where the key of a service is: in a variable of the environment, or where a reference says."""

    env: str = ""
    ref: str = ""


class Secrets:
    """Reads keys from the environment and from files below one folder."""

    def __init__(self, variables: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        """Take variables in the place of those of the environment, and where files may be."""
        self._variables = variables
        self._folder = folder

    def key(self, reference: KeyReference) -> Secret | None:
        """The key, or None where there is none or an empty one."""
        try:
            text = self._variable(reference.env) if reference.env else self.text(reference.ref)
        except Misuse:
            return None
        text = text.strip()
        return Secret(text) if text else None

    def text(self, ref: str) -> str:
        """The secret that a reference stands for.

        Raises:
            Misuse: it is none, or leads to nothing; the text never holds what was found.
        """
        scheme, _, rest = ref.partition(":")
        if scheme == "env" and rest:
            text = self._variable(rest).strip()
            if not text:
                raise Misuse(f"the environment has no {rest}; set it, or name another")
            return text
        if scheme == "file" and rest:
            return self._file(rest)
        raise Misuse("a secret is referred to by env:NAME or file:relative/path")

    def _variable(self, name: str) -> str:
        variables = environment(name) if self._variables is None else self._variables
        return variables.get(name, "")

    def _file(self, name: str) -> str:
        if self._folder is None:
            raise Misuse(f"file:{name}: no folder for secrets is known here; use env:NAME")
        folder = self._folder.resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise Misuse(f"file:{name} leads out of the folder for secrets; name a file below it")
        try:
            with path.open("rb") as file:
                text = file.read(_LONGEST_BYTES).decode().strip()
        except (OSError, ValueError):
            raise Misuse(f"file:{name} cannot be read; look whether it is there and is text") from None
        if not text:
            raise Misuse(f"file:{name} is empty; write the secret into it")
        return text
