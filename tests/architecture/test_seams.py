"""The environment, SQL, the clock and chance each have one place."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import PACKAGE, Module, dotted, imports, modules

SQL = re.compile(
    r"\s*(SELECT\b.+\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\b.+\bSET|DELETE\s+FROM|PRAGMA\s+\w+"
    r"|(CREATE|DROP|ALTER)\s+(UNIQUE\s+)?(TABLE|INDEX|VIEW|TRIGGER)|BEGIN\s+(IMMEDIATE|EXCLUSIVE)|WITH\b.+\bSELECT)\b",
    re.DOTALL,
)
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.putenv"}
# Waiting and measuring (time.monotonic, loop.time) is free; knowing the date or rolling dice is not.
CHANCE = {
    "time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now", "datetime.today",
    "uuid.uuid1", "uuid.uuid4", "uuid.uuid7", "os.urandom",
}  # fmt: skip


def test_only_config_reads_the_environment() -> None:
    strays = [
        module.at(node)
        for module in modules()
        # The process that runs filters empties it.
        if module.where not in {"config.py", "flow/jq/worker.py"}
        for node in module.walk(ast.Attribute, ast.ImportFrom)
        if dotted(node) in ENVIRONMENT or _takes(node, "os", {"environ", "environb", "getenv", "putenv"})
    ]
    assert strays == []


def test_only_the_clock_knows_the_date() -> None:
    strays = [
        f"{module.at(node)} {dotted(node)}"
        for module in modules()
        if module.where != "clock.py"
        for node in module.walk(ast.Attribute, ast.ImportFrom)
        if dotted(node) in CHANCE or _takes(node, "time", {"time", "time_ns"})
    ]
    assert strays == []


def test_random_numbers_come_from_the_clock_module() -> None:
    strays = [
        f"{module.where}:{each.line}"
        for module in modules()
        for each in imports(module)
        if each.target == "random" and module.room not in {"clock", "mock"}
    ]
    assert strays == []


def test_sql_stays_in_store() -> None:
    strays = [
        module.at(node)
        for module in modules()
        if module.room != "store"
        for node in module.walk(ast.Constant)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    ]
    files = [p for p in PACKAGE.rglob("*.sql") if p.relative_to(PACKAGE).parts[:2] != ("store", "sql")]
    assert strays == []
    assert files == []


@pytest.mark.parametrize("text", ["SELECT x FROM t", "\n  INSERT OR IGNORE INTO t", "PRAGMA user_version"])
def test_the_check_sees_sql(text: str) -> None:
    assert SQL.match(text)


@pytest.mark.parametrize("text", ["Select one of these", "Update the settings", "with a task selected"])
def test_the_check_lets_prose_pass(text: str) -> None:
    assert not SQL.match(text)


def test_no_swallowed_exceptions() -> None:
    """`except:` and `except BaseException` without a raise would eat cancellation."""
    eaters = [
        module.at(node)
        for module in modules()
        for node in module.walk(ast.ExceptHandler)
        if isinstance(node, ast.ExceptHandler)
        if node.type is None
        or dotted(node.type) in {"BaseException", "CancelledError", "asyncio.CancelledError"}
        if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)) and not _explained(module, node)
    ]
    assert eaters == [], "re-raise it, or say why not on that line: `# Cancelled: …` or `# noqa: BLE001 - …`"


def _explained(module: Module, node: ast.ExceptHandler) -> bool:
    """An owner that awaits a task it has itself cancelled may end the exception, if it says so."""
    lines = module.path.read_text(encoding="utf-8").splitlines()
    near = lines[node.lineno - 1 : node.lineno + 1]
    return any(re.search(r"# (Cancelled:|noqa: BLE001 -) \w", line) for line in near)


def _takes(node: ast.AST, origin: str, names: set[str]) -> bool:
    return (
        isinstance(node, ast.ImportFrom)
        and node.module == origin
        and bool(names & {n.name for n in node.names})
    )
