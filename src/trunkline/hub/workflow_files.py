"""The workflows of a workspace: the files of `workflows/`, and whatever else entries name by a path."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.errors import FlowInvalid, FlowRefused, Misuse
from trunkline.flow.definition.read import read_definition
from trunkline.flow.definition.source import describe_invalid, read_source
from trunkline.flow.definitions import Definitions, Loaded
from trunkline.yaml_reader import read_text

log = logging.getLogger("trunkline.hub")
FOLDER = "workflows"
SUFFIXES = (".json", ".yaml", ".yml")
WATCH_S = 2.0
FILES_LIMIT = 1000


class WorkflowFiles:
    """Definitions by the files that hold them; other workflows know each by its name."""

    def __init__(self, workspace: Path, definitions: Definitions | None = None) -> None:
        """Take a workspace, and where definitions are registered; without that it reads files only."""
        self._workspace = workspace
        self._definitions = definitions
        self._stamps: dict[str, tuple[int, int]] = {}
        self._loaded: dict[str, Loaded] = {}

    def load(self, path: str) -> Loaded:
        """The definition in a file below the workspace, read again when it has changed.

        Raises:
            Misuse: there is none, or it breaks a rule; the text names the file and the line.
        """
        file = self._workspace / path
        try:
            about = file.stat()
        except OSError:
            raise Misuse(f"{path}: there is no such file") from None
        stamp = about.st_mtime_ns, about.st_size
        if self._stamps.get(path) != stamp:
            self._loaded.pop(path, None)
            self._stamps[path] = stamp
        found = self._loaded.get(path)
        if found is None:
            found = self._loaded[path] = read_workflow(path, read_text(file))
        return found

    def paths(self) -> list[str]:
        """The files of the folder, by name."""
        found = sorted((self._workspace / FOLDER).glob("*"))
        return [f"{FOLDER}/{one.name}" for one in found if one.suffix in SUFFIXES][:FILES_LIMIT]

    def faults(self) -> list[str]:
        """The mistakes in the files of the folder."""
        wrong: list[str] = []
        for path in self.paths():
            try:
                self.load(path)
            except Misuse as error:
                wrong.append(str(error))
        return wrong

    async def resolve(self, tenant: str, ref: str, *, by_operator: bool = False) -> Loaded:
        """The definition that a reference stands for: a file of the folder, or one that is registered.

        Files are the operator's, and so of the tenant that the operator's own agents have. In a definition
        of the operator a reference is to a file for every tenant, so that no tenant registers another one.

        Raises:
            FlowRefused: there is none.
        """
        if tenant == DEFAULT_TENANT or by_operator:
            for path in self.paths():
                if Path(path).stem == ref:
                    try:
                        return self.load(path)
                    except Misuse as error:
                        raise FlowRefused("WORKFLOW_NOT_FOUND", str(error)) from None
        if self._definitions is None:
            raise FlowRefused("WORKFLOW_NOT_FOUND", f"there is no workflow {ref!r}")
        return await self._definitions.registered(tenant, ref)

    async def watch(self, changed: Callable[[], None]) -> None:
        """Tell of changes of the files that were loaded, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            if await asyncio.to_thread(self._is_other):
                changed()

    def _is_other(self) -> bool:
        for path, known in list(self._stamps.items()):
            try:
                about = (self._workspace / path).stat()
            except OSError:
                if known != (0, 0):
                    self._stamps[path] = 0, 0
                    return True
                continue
            if (about.st_mtime_ns, about.st_size) != known:
                return True
        return False


def read_workflow(path: str, text: str) -> Loaded:
    """The definition in the text of a file, JSON or YAML.

    Raises:
        Misuse: it breaks a rule; the text names the file and the line.
    """
    document = read_source(text, path)
    try:
        return replace(Loaded.of(read_definition(document)), by_operator=True)
    except FlowInvalid as error:
        hint = shlex.join(["trunkline", "flow", "validate", path])
        raise Misuse(describe_invalid(text, path, document, error), hint=hint) from None
    except FlowRefused as error:
        raise Misuse(f"{path}: {error.message}") from None
