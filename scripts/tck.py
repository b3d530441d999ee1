"""Run the official A2A test kit from a checkout of it against our test-kit agent, and judge what failed.

    python scripts/tck.py DIR 1.0|0.3 [--at agent|hub|listed]

With `--at hub` the agent is the helm of a hub, and the kit meets the hub at its origin; with `--at listed` it
meets the agent at the address that it has in the hub's catalogue.

DIR is a checkout of a2aproject/a2a-tck: branch 1.0-dev for 1.0, branch 0.3.x for 0.3. It is only read; what
the kit needs is installed under .bench/. Exits with 0 if every failure is void. The kit's push configs name
example.com, which must have an address here: nothing is sent to a name that leads nowhere.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

WORK = Path(__file__).resolve().parents[1] / ".bench"
HOST = "127.0.0.1"
READY_S = 20.0

# Failures that say nothing about the agent: the start of a test's name → what is wrong with the test.
_MEDIA_TYPE = "wants application/json where the client names no type; 1.0.1 prefers application/a2a+json"
VOID = {
    "1.0": {
        "test_must_requirement[CORE-SEND-003": "asks for ContentTypeNotSupported, then fails who answers so",
        "test_agent_card_validates_against_schema": "refuses a card that also serves 0.3",
        "test_last_modified_present": "fails for want of an optional header; the card has an ETag",
        "test_error_uses_aip193_format": _MEDIA_TYPE,
        "test_error_content_type": _MEDIA_TYPE,
    },
    "0.3": {
        "test_task_state_transitions": "expects an answer before the task rests without asking for one",
        "test_message_send_continue_with_contextid": "over REST it invents a contextId for an existing task",
        "test_get_push_notification_config": "asks for a config by the id `default`, which nobody gave it",
        "test_public_agent_card_access_control": "fetches the URL of JSON-RPC and calls it the card",
        "test_sensitive_information_protection": "takes the words apiKey, token and 127.0.0.1 for secrets",
        "test_invalid_authentication": "sends a header that begins with a space, which its client refuses",
    },
}
_AUTHENTICATION = "tests/optional/capabilities/test_authentication.py"
_NAMED = "example.com"
# Left out of the counts: skips that only say that the test is for another transport.
_ELSEWHERE = re.compile(r"transport\b.*not configured|specific to \S+ transport", re.IGNORECASE)


@dataclass(frozen=True)
class Suite:
    """One run of the kit: a category over one transport."""

    category: str
    transport: str
    arguments: tuple[str, ...]


@dataclass
class Outcome:
    """What a suite gave."""

    counts: Counter[str] = field(default_factory=Counter[str])
    failed: list[str] = field(default_factory=list)


def suites(line: str, base: str) -> Iterator[Suite]:
    """The runs of a line."""
    if line == "1.0":
        for level in ("must", "should", "may"):
            for transport in ("jsonrpc", "http_json"):
                chosen = (f"--sut-host={base}", f"--transport={transport}", "-m", level)
                yield Suite(level, transport, ("tests/compatibility", *chosen))
        return
    url = (f"--sut-url={base}/a2a", "--test-scope=all")
    for transport in ("jsonrpc", "rest"):
        folder, marks = "tests/mandatory", "mandatory_jsonrpc or mandatory_protocol"
        if transport == "rest":
            folder, marks = "tests/mandatory/protocol", "mandatory_protocol"
        yield Suite("mandatory", transport, (folder, *url, f"--transports={transport}", "-m", marks))
        for category in ("capabilities", "features", "quality"):
            folder = f"tests/optional/{category}"
            yield Suite(category, transport, (folder, *url, f"--transports={transport}"))
    both = "jsonrpc,rest"
    yield Suite("equivalence", both, ("tests/optional/multi_transport", *url, f"--transports={both}"))


def keyed_suites(line: str, base: str) -> Iterator[Suite]:
    """The runs against an agent that asks for a key; the kit has none, and none for 1.0."""
    if line == "1.0":
        return
    folders = ("tests/mandatory/authentication", "tests/mandatory/security", _AUTHENTICATION)
    for transport in ("jsonrpc", "rest"):
        chosen = (f"--sut-url={base}/a2a", "--test-scope=all", f"--transports={transport}")
        yield Suite("security", transport, (*folders, *chosen))


def environment(kit: Path, line: str) -> Path:
    """The Python of a virtual environment that has what the kit depends on."""
    project = tomllib.loads((kit / "pyproject.toml").read_text(encoding="utf-8"))
    packages: list[str] = project["project"]["dependencies"]
    folder = WORK / f"tck-{line}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(packages):
        print(f"installing what the kit needs into .bench/{folder.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *packages], check=True)
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return python


@contextmanager
def agent(target: str, place: str, *flags: str) -> Generator[str]:
    """Our agent on a free port, which tells webhooks on this machine too; its base URL.

    It is served alone, or by a hub, whose origin or whose address of the agent is the base.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    with TemporaryDirectory() as workspace:
        what = ["serve", target]
        if place != "agent":
            Path(workspace, "agents.yaml").write_text(f"agents: [{{name: tck, import: '{target}'}}]\n")
            Path(workspace, "hub.yaml").write_text("helm: tck\n")
            what = ["hub", workspace]
        command = [Path(sys.executable).with_name("trunkline"), *what, "--port", str(port)]
        with _served([*command, "--store", "memory:", "--log-level", "error", "--dev", *flags], port):
            yield f"http://{HOST}:{port}" + ("/v1/a2a/agents/tck" if place == "listed" else "")


@contextmanager
def _served(command: Sequence[str | Path], port: int) -> Generator[None]:
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + READY_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[1]} {command[2]} did not start")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _has_address(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, 443))
    except OSError:
        return False


def run(suite: Suite, kit: Path, python: Path) -> Outcome:
    """Run a suite and read its report."""
    report = WORK / "tck-report.xml"
    report.unlink(missing_ok=True)
    pytest = [python, "-B", "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
    ended = subprocess.run([*pytest, *suite.arguments], cwd=kit, capture_output=True, text=True, check=False)
    if not report.exists():
        raise SystemExit(f"the kit did not run:\n{ended.stdout}{ended.stderr}")
    outcome = Outcome()
    for case in ET.parse(report).iter("testcase"):
        verdict = _verdict(case)
        outcome.counts[verdict] += 1
        if verdict == "failed":
            outcome.failed.append(case.get("name", ""))
    return outcome


def _verdict(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "elsewhere" if _ELSEWHERE.search(skipped.get("message", "")) else "skipped"


def judge(name: str, line: str) -> str:
    """Why a failure does not count; empty if it does."""
    plain = name.partition("[")[0]
    for start, why in VOID[line].items():
        if plain == start or ("[" in start and name.startswith(start)):
            return f"void: {why}"
    return ""


def main() -> int:
    """Run a line; the exit code."""
    parser = argparse.ArgumentParser(description="Run the official A2A test kit against our test-kit agent.")
    parser.add_argument("kit", type=Path, help="a checkout of a2aproject/a2a-tck")
    parser.add_argument("line", choices=list(VOID), help="the version to test")
    places = ["agent", "hub", "listed"]
    parser.add_argument("--at", choices=places, default="agent", help="where the kit meets the agent")
    options = parser.parse_args()
    line: str = options.line
    kit: Path = options.kit.resolve()
    if not (kit / "pyproject.toml").is_file():
        parser.error(f"{options.kit} is no checkout of the kit")
    python = environment(kit, line)
    if not _has_address(_NAMED):
        print(f"{_NAMED} has no address here: the kit's push configs name it and will be refused", flush=True)
    judged: list[tuple[Suite, str, str]] = []
    print("| category | transport | passed | failed | skipped |\n|---|---|---|---|---|", flush=True)
    target = "trunkline.demo:tck" if line == "1.0" else "trunkline.demo:tck03"
    for chosen, flags in ((suites, ()), (keyed_suites, ("--key", "a-key-that-the-kit-has-not"))):
        with agent(target, options.at, *flags) as base:
            for suite in chosen(line, base):
                outcome = run(suite, kit, python)
                counts = " | ".join(str(outcome.counts[word]) for word in ("passed", "failed", "skipped"))
                print(f"| {suite.category} | {suite.transport} | {counts} |", flush=True)
                judged += [(suite, name, judge(name, line)) for name in outcome.failed]
    for suite, name, reason in judged:
        print(f"\n{suite.category}, {suite.transport}: {name}\n  {reason or 'FAILED'}")
    return 0 if all(reason for _, _, reason in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
