"""Definitions: read, held ready, recorded with the runs that they are walked by, registered under an id.

A run is walked by the definition in the first append of its log, and that goes when the run is forgotten. A
workflow that was registered is a document by its hash, and one by its id that names the hash.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import Conflict, FlowInvalid, FlowRefused, StoreError, Unavailable
from trunkline.flow.definition.checks import SchemaCheck, plain_schema
from trunkline.flow.definition.document import (
    BY_OPERATOR,
    WORKFLOW_ID_KIND,
    WORKFLOW_IDS,
    WORKFLOW_KIND,
    WORKFLOWS,
    Definition,
)
from trunkline.flow.definition.programs import Compiler, program_rules
from trunkline.flow.definition.read import read_definition
from trunkline.flow.jq.pool import WorkerBusy
from trunkline.flow.jq.schemas import SchemaChecker
from trunkline.log.events import Recorded, Stepped
from trunkline.store.documents import DocumentKind
from trunkline.store.parts import Docs
from trunkline.store.records import Doc

# The step of a run that holds its definition, and its place.
STEP, PLACE = "flow.definition", 0
LARGEST = 2 << 20
# How many workflows a tenant may register.
TENANT_LIMIT = 1000
# Size limits of the cache of definitions: entries, and bytes of their texts in all. Read, one takes some ten
# times as much memory as its text.
CACHED, CACHED_BYTES = 256, 4 << 20
# How many definitions are remembered whose schemas compile.
CHECKED = 4096
# From this many bytes on, reading a definition takes more than some milliseconds.
_LARGE = 32 << 10
K = TypeVar("K", bytes, str)
V = TypeVar("V")
Given = TypeVar("Given")
Made = TypeVar("Made")


class Loaded(Struct, frozen=True, weakref=True):
    """A definition with the check of its states."""

    definition: Definition
    check: SchemaCheck
    # Whether it is a file of the operator, or was registered by an operator for another tenant.
    by_operator: bool = False

    @classmethod
    def of(cls, definition: Definition) -> Loaded:
        """Return a definition with its check."""
        return cls(definition, SchemaCheck(plain_schema(definition.state_schema)))

    @property
    def step(self) -> Stepped:
        """What the log of a run says of the definition that it is walked by."""
        return Stepped(PLACE, STEP, self.definition.document)


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """The newest entries of a mapping by texts, up to a number of entries and of bytes of their keys."""

    def __init__(self, bound: int, bytes_bound: int) -> None:
        super().__init__()
        self._bound = bound
        self._bytes_bound = bytes_bound
        self._bytes = 0

    def find(self, key: K) -> V | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def keep(self, key: K, value: V) -> None:
        if key not in self:
            self._bytes += len(key)
        self[key] = value
        while len(self) > self._bound or (self._bytes > self._bytes_bound and len(self) > 1):
            self._bytes -= len(self.popitem(last=False)[0])


class Definitions:
    """Reads definitions, registers them, and finds those of runs and those that were registered."""

    def __init__(self, docs: Docs, compiler: Compiler, schemas: SchemaChecker) -> None:
        self._docs = docs
        self._compiler = compiler
        self.schemas = schemas
        self._by_text: _Recent[bytes, Loaded] = _Recent(CACHED, CACHED_BYTES)
        # The hashes of definitions whose schemas compile.
        self._checked: _Recent[str, bool] = _Recent(CHECKED, CACHED_BYTES)
        # Of each tenant by their hashes, while somebody has them in hand.
        self._held: WeakValueDictionary[tuple[str, str], Loaded] = WeakValueDictionary()

    def read(self, document: object) -> Loaded:
        """The definition in a document; where others wait meanwhile, `load` is for that.

        Raises:
            FlowInvalid: it breaks a rule, or is too large.
        """
        text = _encoded(document)
        return self._by_text.find(text) or self._keep_ready(text, _read(text))

    async def load(self, document: object) -> Loaded:
        """The definition in a document, read beside what else goes on if it is large.

        Raises:
            FlowInvalid: it breaks a rule, or is too large.
        """
        text = _encoded(document)
        found = self._by_text.find(text)
        if found is not None:
            return found
        return self._keep_ready(text, await beside(len(text), _read, text))

    async def check(self, loaded: Loaded, tenant: str) -> None:
        """Check that the schemas of a definition compile; workers compile those that are not small.

        Raises:
            FlowInvalid: one is refused.
            Unavailable: no worker is free.
        """
        if self._checked.find(loaded.definition.hash):
            return
        try:
            found = await self.schemas.find_refused(loaded.definition.document, tenant)
        except WorkerBusy as busy:
            raise Unavailable(f"the schemas of the definition cannot be checked now: {busy}") from None
        if found is not None:
            raise FlowInvalid(str(found), [found])
        self._checked.keep(loaded.definition.hash, True)

    def _keep_ready(self, text: bytes, read: Loaded) -> Loaded:
        self._by_text.keep(text, read)
        return read

    def hold(self, tenant: str, loaded: Loaded) -> None:
        """Have a definition found by its hash for as long as the caller has it in hand."""
        self._held[tenant, loaded.definition.hash] = loaded

    def held(self, tenant: str, hash: str) -> Loaded | None:
        """The definition of a hash, if somebody of the tenant has it in hand."""
        return self._held.get((tenant, hash))

    async def keep(self, tenant: str, loaded: Loaded) -> None:
        """Write a definition into the store; a damaged document of its hash is replaced."""
        hash, body = loaded.definition.hash, msgspec.json.encode(loaded.definition.document)
        doc = await self._docs.get(tenant, WORKFLOW_KIND, hash)
        if doc is not None and WORKFLOWS.read_or_set_aside(tenant, doc) is not None:
            return
        with suppress(Conflict):
            # Another caller has just written it: by this hash it is the same definition.
            await self._docs.put(tenant, WORKFLOW_KIND, hash, body, 0 if doc is None else doc.rev)

    async def recorded(self, tenant: str, records: Iterable[Recorded], hash: str) -> Loaded:
        """The definition of a run, from its log; by its hash if a version began it that had none there.

        Raises:
            FlowRefused: there is none, or a newer version wrote it.
        """
        for one in records:
            if isinstance(one.event, Stepped) and one.event.name == STEP:
                try:
                    return await self.load(one.event.result)
                except FlowRefused as refused:
                    text = "this version cannot read the run, which a newer one may have started"
                    raise FlowRefused("VALIDATION_ERROR", f"{text}: {refused.message}") from refused
        return await self.get(tenant, hash)

    async def get(self, tenant: str, hash: str) -> Loaded:
        """The definition of a hash, where it is a document.

        Raises:
            FlowRefused: the store has none, or its document is damaged.
        """
        found = self.held(tenant, hash)
        if found is not None:
            return found
        doc = await self._docs.get(tenant, WORKFLOW_KIND, hash)
        if doc is None:
            raise FlowRefused("WORKFLOW_NOT_FOUND", f"there is no definition with the hash {hash}")
        found = self._by_text.find(doc.body)
        if found is None or found.definition.hash != hash:
            _check_document(WORKFLOWS, doc)
            found = self._keep_ready(doc.body, await beside(len(doc.body), _read, doc.body))
        self.hold(tenant, found)
        return found

    async def register(self, tenant: str, workflow_id: str, loaded: Loaded) -> None:
        """Register a definition under an ID.

        Raises:
            FlowInvalid: one of its filters or schemas does not compile.
            FlowRefused: another definition has the ID, or the tenant has reached its limit.
        """
        await self.check(loaded, tenant)
        async for error in program_rules(loaded.definition.document, self._compiler, tenant):
            # The first error suffices: each filter may take seconds to compile.
            raise FlowInvalid(str(error), [error])
        # Two at once may both find room for the last one: a bound, not a count.
        if len(await self._docs.list(tenant, WORKFLOW_ID_KIND, limit=TENANT_LIMIT)) >= TENANT_LIMIT:
            raise FlowRefused("VALIDATION_ERROR", f"a tenant registers at most {TENANT_LIMIT} workflows")
        await self.keep(tenant, loaded)
        try:
            body = f"{loaded.definition.hash}{BY_OPERATOR if loaded.by_operator else ''}".encode()
            await self._docs.put(tenant, WORKFLOW_ID_KIND, workflow_id, body, 0)
        except Conflict:
            raise FlowRefused(
                "DUPLICATE_WORKFLOW_ID", f"there is a workflow {workflow_id!r}; give this one another name"
            ) from None

    async def registered(self, tenant: str, workflow_id: str) -> Loaded:
        """The definition that has an id.

        Raises:
            FlowRefused: none has it.
        """
        doc = await self._docs.get(tenant, WORKFLOW_ID_KIND, workflow_id)
        if doc is None:
            raise FlowRefused("WORKFLOW_NOT_FOUND", f"there is no workflow {workflow_id!r}")
        text = _check_document(WORKFLOW_IDS, doc)
        found = await self.get(tenant, text.removesuffix(BY_OPERATOR))
        return replace(found, by_operator=text.endswith(BY_OPERATOR))


def _check_document(kind: DocumentKind[Made], doc: Doc) -> Made:
    """Return the value of a document.

    Raises:
        FlowRefused: the document is damaged; another definition must not run in its place.
    """
    try:
        return kind.read(doc.id, doc.body)
    except StoreError as error:
        raise FlowRefused("INTERNAL_ERROR", str(error)) from None


async def beside(size: int, work: Callable[[Given], Made], given: Given) -> Made:
    """The result of a function, called in a thread where its input is large and it takes long."""
    # A thread costs more than a small definition takes; a large one would keep everybody else waiting.
    return work(given) if size < _LARGE else await asyncio.to_thread(work, given)


def _encoded(document: object) -> bytes:
    try:
        text = msgspec.json.encode(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise FlowRefused("VALIDATION_ERROR", f"the definition is no JSON: {error}") from None
    if len(text) > LARGEST:
        raise FlowRefused("VALIDATION_ERROR", f"a definition has at most {LARGEST >> 20} MiB as JSON")
    return text


def _read(text: bytes) -> Loaded:
    # Its own copy: whoever gave it may go on changing it.
    return Loaded.of(read_definition(msgspec.json.decode(text)))


class KnownWorkflows:
    """Workflows by the references that others call them by: given here, or registered under an id."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._given: dict[str, Loaded] = {}

    def add(self, ref: str, document: object) -> None:
        """Have a reference stand for a document; for the newest where there were others.

        Raises:
            FlowInvalid: the document breaks a rule.
        """
        self._given[ref] = self._definitions.read(document)

    async def resolve(self, tenant: str, ref: str, *, by_operator: bool = False) -> Loaded:
        """The definition that a reference stands for.

        Raises:
            FlowRefused: there is none.
        """
        del by_operator
        found = self._given.get(ref)
        return found if found is not None else await self._definitions.registered(tenant, ref)
