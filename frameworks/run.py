"""Lets the A2A clients of other frameworks call the demo agent, each in its environment.

`make frameworks` needs the network for the packages, and nothing else: no model is asked.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".frameworks"
TEXT, ANSWER = "count 5 10", "1 2 3 4 5"
LIMIT_S = 90
# The name of each client, what is installed for it, and the environment that it shares with others.
CLIENTS = {
    "adk": (("google-adk[a2a]", "uvicorn"), "adk"),
    "strands": (("strands-agents[a2a]",), "strands"),
    "ag2": (("ag2[a2a,openai]",), "ag2"),
    "agent_framework": (
        ("agent-framework-core", "agent-framework-a2a", "httpx", "--prerelease=allow"),
        "agentframework",
    ),
    "agno": (("agno[a2a]", "openai", "a2a-sdk"), "agno"),
    "agno_stream": (("agno[a2a]", "openai", "a2a-sdk"), "agno"),
    "fasta2a": (("fasta2a", "httpx"), "fasta2a"),
    "crewai": (("crewai[a2a]",), "crewai"),
}


def environment(uv: str, name: str, packages: tuple[str, ...]) -> Path:
    """The interpreter of an environment that has these packages; it is made if it is not there."""
    home = ENVIRONMENTS / name
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(home)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *packages], check=True)
    return python


def serve(close: str) -> tuple[subprocess.Popen[bytes], str]:
    """The demo agent with one way to close streams, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "trunkline.cli", "serve", "trunkline.demo:agent", "--store", "memory:"]
    command += ["--port", str(port), "--set", f"stream_close={close}", "--set", "log_level=error"]
    server = subprocess.Popen(command)
    base = f"http://127.0.0.1:{port}"
    while server.poll() is None:
        try:
            with urlopen(f"{base}/readyz", timeout=5):  # noqa: S310
                return server, base
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the demo agent does not start")


def called(python: Path, name: str, base: str) -> str:
    """What a client makes of the answer, in one word or two."""
    script = HERE / "clients" / f"{name}_client.py"
    given = {**os.environ, "OPENAI_API_KEY": "none", "OTEL_SDK_DISABLED": "true"}
    command = [str(python), "-W", "ignore", str(script), base, TEXT]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=given, check=False
        )
    except subprocess.TimeoutExpired:
        return "no end"
    said = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["?"])[-1]
        return f"breaks: {why[:100]}".replace("|", "/")
    return "whole" if said == ANSWER else f"`{said[:60]}`" if said else "empty"


def main() -> None:
    """Call the agent by each client, with both ways to close a stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--only", default="", help="names of clients, with commas")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*CLIENTS]
    servers = {close: serve(close) for close in ("whole", "last")}
    print("| Client | `stream_close=whole` | `stream_close=last` |\n|---|---|---|")
    try:
        for name in names:
            packages, home = CLIENTS[name]
            python = environment(options.uv, home, packages)
            found = [called(python, name, base) for _, base in servers.values()]
            print(f"| {name} | {' | '.join(found)} |", flush=True)
    finally:
        for server, _ in servers.values():
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()
