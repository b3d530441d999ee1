"""Each program of `examples/` runs as its first lines say, and says what it should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.harness import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = 70


def run(*words: str, **variables: str) -> str:
    """What a program prints; it must end well and complain of nothing."""
    command = [sys.executable, "-W", "error", *words]
    env = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


class FlowProcess(ServerProcess):
    """`trunkline flow serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        command = "from trunkline.cli.main import main; main()"
        self._command = [sys.executable, "-c", command, "flow", "serve", "--port", str(self.port)]


def serve(folder: Path, *targets: str, **variables: str) -> ServerProcess:
    """`trunkline serve` of an example, with its store in a folder of the test."""
    first, *flags = targets
    return ServerProcess(folder, first, *flags, env={"PYTHONPATH": str(EXAMPLES), **variables})


def test_every_example_is_listed_and_short() -> None:
    programs = sorted(EXAMPLES.glob("*.py"))
    listing = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(programs) == 12
    for program in programs:
        assert f"({program.name})" in listing
        assert len(program.read_text(encoding="utf-8").splitlines()) <= LINES


def test_streaming(tmp_path: Path) -> None:
    with serve(tmp_path, "streaming:agent") as server:
        said = run("streaming.py", server.base)
    text = "".join(f"{number}. Something about tea.\n" for number in (1, 2, 3))
    assert said == f"[writing]\n{text}report.txt: {len(text)} bytes of text/plain\n"


def test_an_approval_survives_a_kill(tmp_path: Path) -> None:
    with serve(tmp_path, "approval:agent") as server:
        question, command = run("approval.py", "300 to Ada", AGENT_URL=server.base).splitlines()
        assert question == "Transfer 300 to Ada? Reservation R-10."
        server.stop(signal.SIGKILL)
        with server:
            said = run(*command.split()[1:], AGENT_URL=server.base)
        assert said == "Transferred 300 to Ada by reservation R-10.\n"
        assert server.text().count("reserved: 300 to Ada") == 1


def test_fastapi_mount() -> None:
    # A server of its own in the same program: its port is bound before, and it ends with the program.
    program = (
        "import asyncio, httpx2, socket, uvicorn, fastapi_mount as example\n"
        "from trunkline.errors import Unauthenticated\n"
        "from trunkline import Client\n"
        "class Server(uvicorn.Server):\n"
        "    async def startup(self, sockets=None):\n"
        "        await super().startup(sockets)\n"
        "        started.set()\n"
        "async def main():\n"
        "    global started\n"
        "    started = asyncio.Event()\n"
        "    bound = socket.create_server(('127.0.0.1', 0))\n"
        "    server = Server(uvicorn.Config(example.app, log_level='error', ws='none'))\n"
        "    serving = asyncio.create_task(server.serve([bound]))\n"
        "    await started.wait()\n"
        "    url = f'http://127.0.0.1:{bound.getsockname()[1]}'\n"
        "    await example.main(url)\n"
        "    async with Client(url) as stranger, httpx2.AsyncClient() as browser:\n"
        "        try:\n"
        "            await stranger.send('Sunday')\n"
        "        except Unauthenticated:\n"
        "            print('refused')\n"
        "        print((await browser.get(url + '/hours/monday')).json())\n"
        "    server.should_exit = True\n"
        "    await serving\n"
        "    bound.close()\n"
        "asyncio.run(main())\n"
    )
    said = run("-c", program, DESK_KEY="a-long-random-key", TRUNKLINE_STORE="memory:")
    assert said == "closed\nrefused\n{'hours': '9 to 5'}\n"


def test_an_agent_that_calls_an_agent(tmp_path: Path) -> None:
    server = serve(tmp_path, "delegation:planner", "delegation:weather")
    with server:
        assert run("delegation.py", server.base) == "Bergen: a museum\nAthens: the beach\n"


def test_host_loop(tmp_path: Path) -> None:
    with FlowProcess(tmp_path) as server:
        said = run("host_loop.py", server.base)
    assert said.splitlines() == [
        "awaiting_activity at implement",
        "interrupted at approve",
        "completed {'task': 'implement feature X', 'patch': '// implement feature X', 'merge': True}",
    ]


def test_a_workflow_that_delegates(tmp_path: Path) -> None:
    key = "a-long-random-key"
    with serve(tmp_path, "flow_delegate:coder", "--key", key) as server:
        said = run("flow_delegate.py", f"{server.base}/delegate", CODER_KEY=key).splitlines()
    assert said[0].startswith("run-1:delegate:implement is task ")
    state = (
        "{'task': 'implement feature X', 'patch': '// implement feature X', 'delegate_status': 'completed'}"
    )
    assert said[1:] == [f"completed {state}"]


def test_a_host_that_answers_what_a_delegate_asks(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    with FlowProcess(tmp_path) as engine, serve(tmp_path / "agent", "flow_questions:coder") as agent:
        said = run("flow_questions.py", engine.base, agent.base)
    assert said.splitlines() == [
        "awaiting_activity coder {'task': 'implement feature X'}",
        "Which API style should the patch use?",
        "completed {'task': 'implement feature X', 'patch': '// implement feature X (REST)'}",
    ]


def test_a_transport_of_ones_own() -> None:
    assert run("flow_transport.py").splitlines() == [
        "submitted to coder",
        "completed {'task': 'implement feature X', 'patch': '// implement feature X'}",
    ]


def test_webhook_receiver(tmp_path: Path) -> None:
    with serve(tmp_path, "webhook_receiver:agent", "--dev") as server:
        assert run("webhook_receiver.py", server.base) == "COMPLETED: 6 words\n"


def test_mocks() -> None:
    assert "3 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_with_mocks.py")


def test_replicas(postgres_url: str) -> None:
    assert run("replicas.py", postgres_url) == "three steps, 2 processes\n"


def test_tool_loop() -> None:
    said = run("tool_loop.py").splitlines()
    assert said[1:] == [
        "a2a__packing__pack: Is the bag small or large?",
        "a2a__packing__pack: umbrella, book",
        "Take along: umbrella, book",
    ]
