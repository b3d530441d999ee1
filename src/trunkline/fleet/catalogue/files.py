"""The files of a workspace that say which agents there are: `agents.yaml`, and `agents.d/*.yaml` one each.

They are looked at every two seconds, by what is in them. One that does not parse changes nothing: its entries
stay as they were, and an entry of its own name shows what is wrong with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from trunkline.errors import InvalidParams, Misuse
from trunkline.fleet.catalogue.entry import EVERY_TENANT, NAME, RESERVED, Entry, faulty_entry
from trunkline.fleet.catalogue.entry_reader import Variable, read_entry
from trunkline.yaml_reader import YamlPosition, read_text, read_yaml

log = logging.getLogger("trunkline.fleet")
LIST, FOLDER = "agents.yaml", "agents.d"
# What members of `auth` are called where agents stand by name.
_REMOTE_NAMES = {"scheme": "type", "credentialsEnv": "token_env"}
# Agents elsewhere by name, as other gateways have them in such a file.
REMOTE = "a2a_agents.json"
# In the place of `agents.yaml` where it is set.
JSON_VARIABLE = "TRUNKLINE_AGENTS_JSON"
ENTRIES_LIMIT = 10_000
WATCH_S = 2.0
# An editor empties a file before it writes it: what has changed is taken once it stays as it is.
SETTLE_S = 0.3


class CatalogueFiles:
    """The entries of a workspace; `take` is handed all of them whenever one has changed.

    With `searches` the operator has set up a search engine, which entries may grant to their models.
    """

    def __init__(
        self,
        workspace: Path,
        variable: Variable,
        take: Callable[[Sequence[Entry]], None],
        *,
        searches: bool = False,
    ) -> None:
        self._searches = searches
        self._workspace = workspace
        self._variable = variable
        self._take = take
        self._texts: dict[str, str | Misuse] = {}
        self._parsed: dict[str, list[Entry]] = {}
        self._faults: dict[str, str] = {}

    def start(self) -> None:
        """Read the files for the first time.

        Raises:
            Misuse: one does not parse; the text names file and line.
        """
        self.check()
        for fault in self._faults.values():
            raise Misuse(fault)

    def check(self) -> bool:
        """Read what has changed since the last time; whether anything has."""
        texts = self._read()
        if texts == self._texts:
            return False
        self._parse(texts)
        self._tell()
        return True

    async def watch(self) -> None:
        """Take up changes until cancelled; owned by who serves the catalogue."""
        while True:
            await asyncio.sleep(WATCH_S)
            # Disks may be slow, and so is the reader of a long file.
            found = await asyncio.to_thread(self._read)
            if found == self._texts:
                continue
            await asyncio.sleep(SETTLE_S)
            if _said(await asyncio.to_thread(self._read)) == _said(found):
                before = self.faulty_entries()
                await asyncio.to_thread(self._parse, found)
                log_faults(entry for entry in self.faulty_entries() if entry not in before)
                self._tell()

    def faulty_entries(self) -> list[Entry]:
        """Return the entries that are invalid."""
        return [entry for entries in self._parsed.values() for entry in entries if entry.fault]

    def _tell(self) -> None:
        self._take(merged(self._parsed, self._faults))

    def _read(self) -> dict[str, str | Misuse]:
        given = self._variable(JSON_VARIABLE)
        texts: dict[str, str | Misuse] = {} if given is None else {JSON_VARIABLE: given}
        folder = self._workspace / FOLDER
        paths = [self._workspace / REMOTE, *sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])]
        if given is None:
            paths.insert(0, self._workspace / LIST)
        for path in paths:
            name = path.relative_to(self._workspace).as_posix()
            try:
                texts[name] = read_text(path)
            except FileNotFoundError:
                continue
            except Misuse as error:
                before = self._texts.get(name)
                # An equal one each time, so that it is no change.
                texts[name] = before if isinstance(before, Misuse) and str(before) == str(error) else error
        return texts

    def _parse(self, texts: dict[str, str | Misuse]) -> None:
        for name in [known for known in {*self._parsed, *self._faults} if known not in texts]:
            self._parsed.pop(name, None)
            self._faults.pop(name, None)
        for name, text in texts.items():
            if self._texts.get(name) == text:
                continue
            try:
                if isinstance(text, Misuse):
                    raise text
                self._parsed[name] = parse(name, text, self._variable, searches=self._searches)
                self._faults.pop(name, None)
            except Misuse as error:
                self._faults[name] = str(error)
                log.warning("catalogue.file_refused file=%s error=%s", name, error)
        self._texts = texts


def log_faults(entries: Iterable[Entry]) -> None:
    """Log the fault of each entry that has one."""
    for entry in entries:
        if entry.fault:
            log.warning("catalogue.entry_refused agent=%s error=%a", entry.name, entry.fault)


def _said(texts: Mapping[str, str | Misuse]) -> dict[str, str]:
    """Files by what is in them, or wrong with them: two equal faults are no equal objects."""
    return {name: str(text) for name, text in texts.items()}


def parse(file: str, text: str, variable: Variable, *, searches: bool = False) -> list[Entry]:
    """Return the entries of a file, each valid or with its fault.

    Raises:
        Misuse: the file is not what it should be; the text names file and line.
    """
    entries: dict[str, Entry] = {}
    for raw, where in _rows(file, text):
        entry = _entry(raw, where, variable, searches=searches and file != REMOTE)
        if entry.name in entries:
            fault = f"{where('name')}: there are two agents {entry.name!r}"
            entry = faulty_entry(f"{file}:{entry.name}", "file", fault)
        entries[entry.name] = _told(entry) if file == REMOTE else entry
    return [*entries.values()]


def entry_positions(workspace: Path) -> dict[str, YamlPosition]:
    """Return where each entry of a workspace is written, by its name; files with mistakes are left out."""
    folder = workspace / FOLDER
    found: dict[str, YamlPosition] = {}
    for path in (workspace / REMOTE, workspace / LIST, *sorted(folder.glob("*.y*ml"))):
        try:
            rows = _rows(path.relative_to(workspace).as_posix(), read_text(path))
        except (FileNotFoundError, Misuse):
            continue
        for raw, where in rows:
            if isinstance(raw, dict):
                found[str(cast("dict[str, Any]", raw).get("name"))] = where
    return found


def _rows(file: str, text: str) -> list[tuple[object, YamlPosition]]:
    """Return the entries of a file as they are written, each with its place.

    Raises:
        Misuse: the file is not what it should be; the text names file and line.
    """
    found = read_yaml(text, file)
    if found is None:
        if file.startswith(f"{FOLDER}/"):
            raise Misuse(f"{file}: it has no entry; begin with name: and url:")
        return []
    document, top = found
    if file == REMOTE:
        return _remote(document, top)
    if file.startswith(f"{FOLDER}/"):
        return [(document, top)]
    if file == JSON_VARIABLE and isinstance(document, list):
        document, top = {"agents": cast("list[object]", document)}, top
        rows = top
    elif isinstance(document, dict):
        for name in cast("dict[object, object]", document):
            if name != "agents":
                raise Misuse(f"{top(str(name))}: unknown field {name!r}; the list is called agents")
        rows = top.child("agents") or top
    else:
        raise Misuse(f"{top()}: begin with agents: and a list below it")
    listed = cast("dict[str, object]", document).get("agents")
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise Misuse(f"{rows()}: agents is a list of entries")
    raws = cast("list[object]", listed)
    if len(raws) > ENTRIES_LIMIT:
        raise Misuse(f"{rows()}: a catalogue has at most {ENTRIES_LIMIT} entries")
    return [(raw, rows.child(str(n)) or rows) for n, raw in enumerate(raws)]


def _remote(document: object, top: YamlPosition) -> list[tuple[object, YamlPosition]]:
    """Return entries by name: each has a url and, as bearer auth, a token or the variable of one."""
    listed = cast("dict[str, object]", document).get("agents") if isinstance(document, dict) else document
    if listed is None:
        return []
    if not isinstance(listed, dict):
        raise Misuse(f"{top('agents')}: agents is an object of entries by name")
    at = top.child("agents") or top
    named = cast("dict[str, object]", listed)
    return [(_from_remote(name, raw), at.child(name) or at) for name, raw in named.items()]


def _told(entry: Entry) -> Entry:
    """An entry whose fault calls its members what its own file calls them."""
    fault = entry.fault
    for ours, theirs in _REMOTE_NAMES.items():
        fault = fault.replace(f"auth.{ours}", f"auth.{theirs}")
    return replace(entry, fault=fault) if entry.fault else entry


def _from_remote(name: str, raw: object) -> object:
    """An entry of such a file as `agents.yaml` has it; whatever is wrong with it is told by its reader."""
    if not isinstance(raw, dict):
        return raw
    members = cast("dict[str, Any]", raw)
    auth = members.get("auth")
    if not isinstance(auth, dict):
        return {**members, "name": name}
    shown = cast("dict[str, Any]", auth)
    token, rest = shown.get("token"), {**members, "name": name}
    if isinstance(token, str) and token and shown.get("type", "bearer") == "bearer":
        del rest["auth"]
        return {**rest, "headers": {"Authorization": f"Bearer {token}"}}
    others = {name: value for name, value in shown.items() if name not in ("type", "token", "token_env")}
    named = {"scheme": shown.get("type", "bearer"), "credentialsEnv": shown.get("token_env", "")}
    return {**rest, "auth": {**named, **others}}


def merged(parsed: Mapping[str, list[Entry]], faults: Mapping[str, str]) -> list[Entry]:
    """The entries of all files: those of the folder win by name."""
    found: dict[str, Entry] = {}
    for file in sorted(parsed, key=lambda name: (name.startswith(FOLDER), name)):
        found |= {entry.name: entry for entry in parsed[file]}
    if len(found) > ENTRIES_LIMIT:
        file = FOLDER
        faults = {**faults, file: f"{file}: a catalogue has at most {ENTRIES_LIMIT} entries"}
        found = dict([*found.items()][:ENTRIES_LIMIT])
    return [*found.values(), *_shown(faults.items())]


def _shown(faults: Iterable[tuple[str, str]]) -> list[Entry]:
    return [faulty_entry(file, "file", fault) for file, fault in faults]


def _entry(raw: object, where: YamlPosition, variable: Variable, *, searches: bool) -> Entry:
    if not isinstance(raw, dict):
        raise Misuse(f"{where()}: an entry has at least name and url")
    members = cast("dict[str, Any]", raw)
    try:
        return read_entry(members, "file", variable, searches=searches)
    except InvalidParams as error:
        said = f"{error.field}: " if error.field else ""
        fault = f"{where(error.field)}: {said}{error.message}"
        name = members.get("name")
        is_name = isinstance(name, str) and NAME.fullmatch(name) and name not in RESERVED
        shown = cast("str", name) if is_name else where().replace(", line ", ":")
        return faulty_entry(shown, "file", fault, _tenants(members.get("tenants")))


def _tenants(raw: object) -> tuple[str, ...]:
    """Who sees an entry that cannot be used: whom it names, as far as that can be read."""
    if raw == "all":
        return (EVERY_TENANT,)
    named = cast("list[object]", raw) if isinstance(raw, list) else []
    return tuple(one for one in named if isinstance(one, str) and NAME.fullmatch(one)) or ("default",)
