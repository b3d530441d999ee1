"""YAML that operators write: its values, and the line where each of them stands. Aliases are refused."""

from __future__ import annotations

import re
import shlex
from io import StringIO
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from trunkline.errors import Misuse

# The reader is slow, and what is larger was not written by hand.
FILE_LIMIT = 16 << 20
# Each level costs the reader more time than the one before.
DEPTH_LIMIT = 64
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])")


class YamlPosition(Struct, frozen=True):
    """Says where in a file a value stands; called with the path of a member, such as `auth.scheme`."""

    _file: str
    _node: Node

    def __call__(self, path: str = "") -> str:
        """The file and the line of a member."""
        return f"{self._file}, line {self.line(path)}"

    def line(self, path: str = "") -> int:
        """The line of a member, or of the nearest one around it that is there."""
        at = self
        for step in re.findall(r"[\w$-]+", path):
            inner = at.child(step)
            if inner is None:
                break
            at = inner
        return cast("Any", at._node).start_mark.line + 1

    def child(self, step: str) -> YamlPosition | None:
        """Where a member of a mapping stands, however it is spelled, or an item of a list by its number."""
        node = self._node
        if isinstance(node, SequenceNode) and step.isdigit():
            items = cast("list[Node]", node.value)
            return YamlPosition(self._file, items[int(step)]) if int(step) < len(items) else None
        if isinstance(node, MappingNode):
            for key, value in cast("list[tuple[Any, Node]]", node.value):
                if key.value == step or snake_case(str(key.value)) == step:
                    return YamlPosition(self._file, value)
        return None

    def key_line(self, name: str) -> int:
        """Return the line of the name of a member, or of the value itself if it has no such member."""
        node = self._node
        pairs = cast("list[tuple[Any, Node]]", node.value) if isinstance(node, MappingNode) else []
        lines = [cast("int", key.start_mark.line) + 1 for key, _ in pairs if key.value == name]
        return lines[0] if lines else self.line()


def read_text(file: Path) -> str:
    """The text of a file.

    Raises:
        FileNotFoundError: there is none.
        Misuse: it cannot be read, or is larger than anybody writes.
    """
    try:
        with file.open("rb") as opened:
            found = opened.read(FILE_LIMIT + 1)
        if len(found) > FILE_LIMIT:
            raise Misuse(f"{file}: it has more than {FILE_LIMIT >> 20} MiB")
        return found.decode()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{file}: {error}") from None


def read_yaml(text: str, file: str) -> tuple[object, YamlPosition] | None:
    """The document in a text, or in JSON, which is YAML too; None where there is nothing in it.

    Raises:
        Misuse: it is none; the text names file and line.
    """
    # Untyped. The nodes are made first: the values carry no lines.
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.max_depth = DEPTH_LIMIT
    try:
        tree: Node | None = yaml.compose(StringIO(text))
        if tree is None:
            return None
        _refuse_aliases(tree, file)
        document: object = yaml.constructor.construct_document(tree)
    except MaxDepthExceededError:
        raise Misuse(f"{file}: it is nested deeper than {DEPTH_LIMIT} levels") from None
    except YAMLError as error:
        raise _syntax_error(file, error) from None
    except ValueError as error:
        # A moment that no calendar has, or a number that no machine reads.
        raise Misuse(f"{file}: {error}") from None
    return None if document is None else (document, YamlPosition(file, tree))


def snake_case(name: str) -> str:
    """`apiKeyEnv` as `api_key_env`."""
    return _HUMP.sub("_", name).lower()


def _refuse_aliases(tree: Node, file: str) -> None:
    """A few lines with aliases stand for more than any memory holds."""
    seen: set[int] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            raise Misuse(
                f"{YamlPosition(file, node)()}: aliases are not read; write the value where it belongs"
            )
        seen.add(id(node))
        if isinstance(node, MappingNode):
            waiting += [one for pair in cast("list[tuple[Node, Node]]", node.value) for one in pair]
        elif isinstance(node, SequenceNode):
            waiting += cast("list[Node]", node.value)


def _syntax_error(file: str, error: Any) -> Misuse:
    """Return the error of a text that is not YAML; its hint prints the line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
    if mark is None:
        return Misuse(f"{file}: invalid YAML: {problem}")
    hint = f"sed -n {mark.line + 1}p {shlex.quote(file)}"
    return Misuse(f"{file}, line {mark.line + 1}: invalid YAML: {problem}", hint=hint)
