"""Kinds of documents: none that a module reads or writes is missing from the registry."""

from __future__ import annotations

import ast
import importlib
import pkgutil

import trunkline
from tests.architecture.source import PACKAGE
from trunkline.gateway.documents import DOCUMENT_KINDS
from trunkline.store.documents import DocumentKind

READING_OR_WRITING = {"get", "put", "list", "list_all", "delete", "size", "changes"}


def test_every_kind_that_a_module_declares_is_registered() -> None:
    names = [
        one.name
        for one in pkgutil.walk_packages(trunkline.__path__, "trunkline.")
        if "__main__" not in one.name
    ]
    modules = [importlib.import_module(name) for name in names]
    declared = {
        value.name for module in modules for value in vars(module).values() if isinstance(value, DocumentKind)
    }
    assert declared == DOCUMENT_KINDS.keys()


def test_every_document_that_a_module_reads_or_writes_is_of_a_registered_kind() -> None:
    """A new kind must be declared before a document of it can be written."""
    found: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if "store" in path.relative_to(PACKAGE).parts[:1]:
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr not in READING_OR_WRITING or not ast.unparse(call.func.value).endswith("docs"):
                continue
            name = "trunkline." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            places = call.args[0:1] if call.func.attr in ("list_all", "changes") else call.args[1:2]
            text = ast.unparse(places[0])
            if text == "self._kind.name":
                # A book of notes is of one of two kinds, which its constructor takes as such.
                continue
            kind = eval(text, vars(importlib.import_module(name)))
            assert kind in DOCUMENT_KINDS, f"{path.name}:{call.lineno}: {kind} is not registered"
            found.add(kind)
    assert len(found) > 10
