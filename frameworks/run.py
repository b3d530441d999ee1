"""Lets the A2A clients of other frameworks call our server and our client their servers, and tells what came.

`make frameworks` needs the network for the packages, and nothing else: no model is asked. Each framework has
an environment of its own under `.frameworks/`; one that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from catalogue import FRAMEWORKS, Framework
from trial import EXPECTED, MARK

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".frameworks"
PAGE = HERE.parent / "docs" / "evidence" / "frameworks.md"
BEGIN = "<!-- What follows is written by `make frameworks`. -->"
INSTALL_S, START_S, SCRIPT_S = 300, 60, 180
# What a script finds of the environment: nothing that is meant for a real model or a collector.
GIVEN = {
    "PATH": os.environ.get("PATH", ""),
    "HOME": os.environ.get("HOME", ""),
    "OPENAI_API_KEY": "none",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "PYTHONWARNINGS": "ignore",
}


class NotRun(Exception):
    """A script of a framework cannot be tried; the text says why."""


def environment(uv: str, framework: Framework) -> Path:
    """The interpreter of an environment that has the packages; it is made unless it is there."""
    home = ENVIRONMENTS / framework.name
    stamp, python = home / "packages.txt", home / "bin" / "python"
    wanted = "\n".join(framework.packages)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
            [uv, "pip", "install", "--quiet", "--python", str(python), *framework.packages],
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
            except subprocess.TimeoutExpired:
                raise NotRun(f"not installed within {INSTALL_S} seconds") from None
            except subprocess.CalledProcessError as error:
                raise NotRun(f"not installed: {last_line(error.stderr)}") from None
        stamp.write_text(wanted, encoding="utf-8")
    return python


def version(python: Path, framework: Framework) -> str:
    """The version of the framework that the environment has."""
    code = f"from importlib.metadata import version; print(version({framework.distribution!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def serving(command: Callable[[int], list[str]], card: str) -> Iterator[str]:
    """A server on a free port, from when its card is there until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base, end = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    with tempfile.TemporaryFile() as told, tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(command(port), env=GIVEN, cwd=folder, stdout=told, stderr=told)
        try:
            while not answers(base + card):
                if server.poll() is not None or time.monotonic() > end:
                    told.seek(0)
                    raise NotRun(f"does not start: {last_line(told.read().decode(errors='replace'))}")
                time.sleep(0.1)
            yield base
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def answers(url: str) -> bool:
    """Whether there is something at an address."""
    try:
        with urlopen(url, timeout=5):  # noqa: S310
            return True
    except HTTPError as error:
        raise NotRun(f"its card is not at {url}: {error}") from None
    except OSError:
        return False


def tried(python: Path | str, script: str, base: str) -> dict[str, str]:
    """What each trial of a script gave, in a word or two."""
    command = [str(python), str(HERE / script), base]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SCRIPT_S, env=GIVEN, check=False
        )
        out, problem = done.stdout, last_line(done.stderr) if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        out, problem = (error.stdout or b"").decode(errors="replace"), f"no end within {SCRIPT_S} seconds"
    lines = [json.loads(line.removeprefix(MARK)) for line in out.splitlines() if line.startswith(MARK)]
    if not lines:
        raise NotRun(problem or "it told nothing")
    return {trial: verdict(trial, told, error) for trial, told, error in lines}


def verdict(trial: str, told: str, error: str) -> str:
    """What a cell of the table says of one trial."""
    if error:
        return cell(error)
    if told == EXPECTED[trial]:
        return "yes"
    return f"`{cell(told)}`" if told else "empty"


def last_line(text: str) -> str:
    """The line of an output that says what went wrong, which is the last one."""
    return (text.strip().splitlines() or ["it said nothing"])[-1].strip()


def cell(text: str) -> str:
    """A text that fits into a cell."""
    flat = " ".join(text.split()).replace("|", "/").replace("`", "'")
    return flat if len(flat) <= 120 else f"{flat[:119]}…"


def rows(uv: str, framework: Framework) -> Iterator[tuple[str, str, str, dict[str, str] | str]]:
    """What one framework gave: the direction, its name, its version and the trials, or why there are none."""
    try:
        python = environment(uv, framework)
        number = version(python, framework)
    except NotRun as error:
        yield "client", framework.title, "", cell(str(error))
        return
    if framework.client:
        yield "client", framework.title, number, called(python, framework)
    if framework.server:
        yield "server", framework.title, number, served(python, framework)


def called(python: Path, framework: Framework) -> dict[str, str] | str:
    """What a framework's client made of our server, with both ways to close a stream."""
    found: dict[str, dict[str, str]] = {}
    try:
        for close in ("whole", "last"):
            with serving(lambda port, close=close: demo(port, close), "/.well-known/agent-card.json") as base:
                found[close] = tried(python, f"{framework.name}_client.py", base)
    except NotRun as error:
        return cell(str(error))
    trials = {**found["whole"], **found["last"]}
    return {
        trial: found["whole"].get(trial, "?")
        if found["whole"].get(trial) == found["last"].get(trial)
        else f"{found['whole'].get(trial, '?')}; with `last` {found['last'].get(trial, '?')}"
        for trial in trials
    }


def demo(port: int, close: str) -> list[str]:
    """The command of our demo agent with one way to close streams."""
    command = [sys.executable, "-m", "trunkline.cli", "serve", "trunkline.demo:agent", "--store", "memory:"]
    return [*command, "--port", str(port), "--set", f"stream_close={close}", "--set", "log_level=error"]


def served(python: Path, framework: Framework) -> dict[str, str] | str:
    """What our client made of a framework's server."""
    script = str(HERE / f"{framework.name}_server.py")
    try:
        with serving(lambda port: [str(python), script, str(port)], framework.ready) as base:
            return tried(sys.executable, "our_client.py", base + framework.at)
    except NotRun as error:
        return cell(str(error))


def table(found: list[tuple[str, str, str, dict[str, str] | str]], direction: str) -> str:
    """The results of one direction as a table, with what is known of those that are not right."""
    notes = {one.title: one.client_note if direction == "client" else one.server_note for one in FRAMEWORKS}
    trials = [
        name
        for name in EXPECTED
        if any(isinstance(one[3], dict) and name in one[3] for one in found if one[0] == direction)
    ]
    lines = [
        f"| {'Client' if direction == 'client' else 'Server'} | Version | {' | '.join(trials)} | Why |",
        f"|---|---|{'---|' * len(trials)}---|",
    ]
    for which, title, number, result in found:
        if which != direction:
            continue
        cells = [result.get(name, "–") if isinstance(result, dict) else "not run" for name in trials]
        why = result if isinstance(result, str) else notes[title] if set(result.values()) != {"yes"} else ""
        lines.append(f"| {title} | {number} | {' | '.join(cells)} | {why} |")
    return "\n".join(lines)


def main() -> None:
    """Try all frameworks, or those that are named, and write the page after a whole run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv")
    parser.add_argument(
        "--only", default="", help="names of frameworks, with commas; the page is not written then"
    )
    options = parser.parse_args()
    uv = shutil.which(options.uv) or options.uv
    names = options.only.split(",") if options.only else [one.name for one in FRAMEWORKS]
    found: list[tuple[str, str, str, dict[str, str] | str]] = []
    for framework in FRAMEWORKS:
        if framework.name in names:
            for row in rows(uv, framework):
                found.append(row)
                print(*row, flush=True)
    page = "\n\n".join(
        [
            "## Their clients, our server",
            table(found, "client"),
            "## Our client, their servers",
            table(found, "server"),
        ]
    )
    if not options.only:
        head = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
        PAGE.write_text(f"{head}{BEGIN}\n\n{page}\n", encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
