"""The value of every option: a flag, else the environment, else the nearest `.env` file, the global one, the
default. And these files: one name and value per line; and how those are written that are nobody else's.

A file is found as git finds its own, here or above: whoever works in a folder from elsewhere has not read it,
so it is remembered where each value comes from.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.cli.options import OPTIONS, PREFIX, Option
from trunkline.clock import random_bits
from trunkline.config import LONGEST_S, Secret, environment, secret_text
from trunkline.errors import Misuse
from trunkline.wire.decode import locate_json_error

FILE_NAME = ".env"
FOLDER = "~/.config/a2a-cli"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def config_folder() -> Path:
    """The folder where the global configuration and tokens are kept."""
    return Path(FOLDER).expanduser()


def env_files(given: str) -> list[Path]:
    """The files to read, the strongest first: the one that was named, else the nearest; then the global one.

    Raises:
        Misuse: the named one is not there.
    """
    if given and not Path(given).is_file():
        raise Misuse(f"--config {given}: there is no such file")
    here = Path.cwd()
    near = [Path(given)] if given else [path / FILE_NAME for path in (here, *here.parents)]
    found = [*[path for path in near if path.is_file()][:1], config_folder() / FILE_NAME]
    return list(dict.fromkeys([path for path in found if path.is_file()]))


def read_env_file(path: Path) -> dict[str, str]:
    """The names and values of a `.env` file.

    Raises:
        Misuse: it cannot be read, or a line is no assignment.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise Misuse(f"{path}:{number}: a line is NAME=value, or begins with #")
        found[match[1]] = _unquoted(match[2].strip())
    return found


def _unquoted(text: str) -> str:
    quote = text[:1]
    if quote in {"'", '"'} and len(text) > 1 and text.endswith(quote):
        inner = text[1:-1]
        return inner if quote == "'" else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), inner)
    return re.split(r"\s+#", text, maxsplit=1)[0]


# Of the mode of a file: whoever is not its owner.
OTHERS = 0o077
FLAG, ENVIRONMENT, DEFAULT = "flag", "environment", "default"
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)")
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


class ConfiguredValue(Struct, frozen=True):
    """The value of an option and where it comes from: `rank` is higher where the source is weaker."""

    value: Any
    source: str
    rank: int


class ClientConfiguration(Struct, frozen=True):
    """The values of all options, asked for by name and kind."""

    values: Mapping[str, ConfiguredValue]
    # Variables with our prefix that set nothing.
    unknown: tuple[str, ...]
    # Files that hold a secret which others on this machine can read.
    exposed: tuple[str, ...]
    # The file that nobody named: it lies here or above, and may be a stranger's. And what it says itself.
    found_file: str
    found: Mapping[str, ConfiguredValue]

    def without(self, names: Collection[str]) -> ClientConfiguration:
        """The same without the values of these options; what the found file itself says of them counts."""
        empty = {
            name: ConfiguredValue(_KINDS[OPTIONS[name].kind][1], DEFAULT, len(OPTIONS)) for name in names
        }
        own = {name: value for name, value in self.found.items() if name in empty}
        return replace(self, values={**self.values, **empty, **own})

    def text(self, name: str) -> str:
        """The value of an option that is a text."""
        return self.values[name].value

    def flag(self, name: str) -> bool:
        """Whether a flag is switched on."""
        return self.values[name].value

    def seconds(self, name: str) -> float:
        """A duration."""
        return self.values[name].value

    def count(self, name: str) -> int | None:
        """A number, or None where none was given."""
        return self.values[name].value

    def secret(self, name: str) -> Secret | None:
        """A secret, or None where none was given."""
        return self.values[name].value

    def items(self, name: str) -> tuple[str, ...]:
        """The values of an option that is repeatable."""
        return self.values[name].value

    def members(self, name: str) -> dict[str, Any] | None:
        """A JSON object, or None where none was given."""
        return self.values[name].value

    @property
    def as_json(self) -> bool:
        """Whether programs read the output."""
        return self.text("output") == "json"


def load_configuration(flags: Mapping[str, Any]) -> ClientConfiguration:
    """Read flags, environment and files, and give every option its value.

    Raises:
        Misuse: a value does not fit; the message says which and where it was set.
    """
    layers = _layers(str(flags.get("config", "")))
    values = {name: _configured(option, flags, layers) for name, option in OPTIONS.items()}
    known = {option.variable for option in OPTIONS.values()}
    unknown = {name for _, layer in layers for name in layer if name not in known}
    secret = {option.variable for option in OPTIONS.values() if option.kind == "secret"}
    holding = [where for where, layer in layers[1:] if secret & {name for name in layer if layer[name]}]
    exposed = [where for where in holding if Path(where).stat().st_mode & OTHERS]
    file = _found_file(flags, layers)
    read = {name: _configured(option, {}, layers[1:2]) for name, option in OPTIONS.items()} if file else {}
    found = {name: value for name, value in read.items() if value.source == file}
    return ClientConfiguration(values, tuple(sorted(unknown)), tuple(exposed), file, found)


def _found_file(flags: Mapping[str, Any], layers: list[tuple[str, dict[str, str]]]) -> str:
    if flags.get("config") or len(layers) < 2 or layers[1][0] == str(config_folder() / FILE_NAME):
        return ""
    return layers[1][0]


def is_json_wanted(output: str | None) -> bool:
    """Whether a command that calls no agent prints JSON: by its flag, else by the environment or a file.

    Raises:
        Misuse: it names a format that does not exist.
    """
    flags = {} if output is None else {"output": output}
    return _configured(OPTIONS["output"], flags, _layers("")).value == "json"


def is_json_configured() -> bool:
    """Whether the environment or a file asks for JSON; for errors that come before everything else."""
    try:
        return is_json_wanted(None)
    except Misuse:
        return False


def duration(text: str) -> float:
    """Seconds, from a text such as 90, 500ms, 2s or 1m30s.

    Raises:
        ValueError: it is no duration.
    """
    pieces = _PIECE.findall(text)
    total = sum(float(number) * _UNITS[unit] for number, unit in pieces)
    if not pieces or "".join(map("".join, pieces)) != text or not 0 < total <= LONGEST_S:
        raise ValueError("expected a duration such as 500ms, 2s, 5m or 1h30m")
    return total


def _layers(config: str) -> list[tuple[str, dict[str, str]]]:
    found = [(str(path), read_env_file(path)) for path in env_files(config)]
    ours = [(where, {k: v for k, v in layer.items() if k.startswith(PREFIX)}) for where, layer in found]
    return [(ENVIRONMENT, environment(PREFIX)), *ours]


def _configured(
    option: Option, flags: Mapping[str, Any], layers: list[tuple[str, dict[str, str]]]
) -> ConfiguredValue:
    if option.field in flags:
        given = _named_secret(option, flags[option.field], FLAG)
        return ConfiguredValue(_parse(option, given, f"--{option.name}"), FLAG, 0)
    for rank, (source, layer) in enumerate(layers, 1):
        if option.variable and option.variable in layer:
            where = option.variable if source == ENVIRONMENT else f"{option.variable} in {source}"
            given = _named_secret(option, layer[option.variable], source)
            return ConfiguredValue(_parse(option, given, where), source, rank)
    read, empty = _KINDS[option.kind]
    value = read(option.default) if option.default else empty
    return ConfiguredValue(value, DEFAULT, len(layers) + 1)


def _named_secret(option: Option, given: Any, source: str) -> Any:
    """A secret that `env:NAME` names is that variable. A file may be a stranger's, and must not name one."""
    if option.kind != "secret" or not isinstance(given, str) or not given.startswith("env:"):
        return given
    if source not in (FLAG, ENVIRONMENT):
        raise Misuse(f"{option.variable} in {source}: env:NAME is for flags and variables; write it out here")
    return secret_text(given)


def _parse(option: Option, given: Any, where: str) -> Any:
    if isinstance(given, bool):
        return given
    if isinstance(given, list | tuple):
        return tuple(cast("Sequence[str]", given))
    try:
        value = _KINDS[option.kind][0](given)
    except ValueError as error:
        said = "" if option.kind in ("secret", "object", "list") else f", not {given!r}"
        raise Misuse(f"{where}: {error}{said}", hint=_example(option, where)) from None
    if option.choices and value not in option.choices:
        text = f"{where}: choose {' or '.join(option.choices)}, not {given!r}"
        raise Misuse(text, hint=_example(option, where))
    return value


def _example(option: Option, where: str) -> str:
    """Return an option with a value that it accepts, or the command to correct a variable."""
    if not where.startswith("--"):
        source = where.removeprefix(f"{option.variable} in ")
        return f"unset {where}" if source == where else shlex.join(["grep", "-n", option.variable, source])
    value = option.default or _EXAMPLES.get(option.kind, option.choices[0] if option.choices else "VALUE")
    return f"{where} {value}"


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError("expected true or false")
    return text.lower() in _TRUE


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected a whole number from 0 on")
    return int(text)


def _list(text: str) -> tuple[str, ...]:
    if text.startswith("["):
        try:
            return msgspec.json.decode(text, type=tuple[str, ...])
        except msgspec.MsgspecError:
            raise ValueError("several are a JSON list of texts") from None
    return (text,) if text else ()


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"invalid JSON object{locate_json_error(error, text.encode())}") from None


_EXAMPLES = {"seconds": "30s", "count": "20", "object": '\'{"name": "value"}\'', "list": "NAME"}
# How the text of each kind of option is read, and what its value is where none is given.
_KINDS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "text": (str, ""),
    "choice": (str, ""),
    "flag": (_flag, False),
    "list": (_list, ()),
    "seconds": (duration, 0.0),
    "count": (_count, None),
    "secret": (Secret, None),
    "object": (_object, None),
}


def write_private(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file of mode 0600 in place of what has its name; a link there is replaced, never followed.

    Raises:
        OSError: it cannot be written.
    """
    # A name of its own: another run may write the same file, and a name that can be guessed may be a link.
    part = f"{path}.{random_bits(64):016x}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
