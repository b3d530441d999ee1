"""The filters that a definition holds, and where each of them stands."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, cast

from trunkline.flow.definition.diagnostics import Diagnostic, broken

_PLACE = re.compile(r" at <top-level>, (?:line 1, )?(line [0-9]+, )?(column [0-9]+):?$")


class Compiler(Protocol):
    """Compiles filters without running them."""

    async def wrong(self, program: str, tenant: str = "") -> str | None:
        """Return why a filter does not compile, or None if it does."""
        ...


async def program_rules(
    document: dict[str, Any], compiler: Compiler, tenant: str = ""
) -> AsyncIterator[Diagnostic]:
    """Yield an error for each filter of a definition that does not compile.

    The definition must be valid otherwise. The compiler shares its time among tenants.
    """
    for path, program in programs(document):
        reason = "it is blank" if not program.strip() else await compiler.wrong(program, tenant)
        if reason is not None:
            yield broken(path, "jq", "compiles", f"this filter does not compile: {_short(reason)}")


def programs(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The path and the text of each filter."""
    for place, node in enumerate(document["nodes"]):
        config: dict[str, Any] = node.get("config", {})
        at = ("nodes", place, "config")
        match node["type"]:
            case "switch":
                for number, case in enumerate(config["cases"]):
                    yield (*at, "cases", number, "when"), case["when"]
            case "set_state":
                for name, given in config["assignments"].items():
                    if "jq" in given:
                        yield (*at, "assignments", name, "jq"), given["jq"]
            case "end" if config.get("output_mapping", "").strip():
                yield (*at, "output_mapping"), config["output_mapping"]
            case "subworkflow" | "agent_delegate":
                for name, given in config["input_mapping"].items():
                    program = mapped_program(given)
                    if program is not None:
                        yield (*at, "input_mapping", name), program
            case _:
                pass


def mapped_program(given: Any) -> str | None:
    """The filter that a value of an `input_mapping` stands for; None where the value is meant as it is.

    It is one as `{"jq": …}`, or as a text that is nothing but `${ … }`.
    """
    if isinstance(given, dict):
        members = cast("dict[str, Any]", given)
        program = members["jq"] if members.keys() == {"jq"} else None
        return program if isinstance(program, str) else None
    if isinstance(given, str) and (text := given.strip()).startswith("${") and text.endswith("}"):
        return text[2:-1]
    return None


def _short(reason: str) -> str:
    """jq's words without its own name before them and its count after them."""
    lines = [line for line in reason.splitlines() if line.strip() and not line.startswith("jq: 1 compile")]
    text = " ".join(lines[0].removeprefix("jq: error: ").split()) if lines else reason
    # The line of the file is named elsewhere; this one is that of the filter.
    return _PLACE.sub(r" at \1\2 of the filter", text)
