"""`trunkline mock`: scenarios and scripted models on a port, and recordings of real agents."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from msgspec.structs import replace

from trunkline.cli.configuration import write_private
from trunkline.cli.parsing import Commands, ServingGroup
from trunkline.errors import Misuse
from trunkline.http.host_check import LOOPBACK, is_loopback
from trunkline.mock.app import Mock
from trunkline.mock.model_script import load_model_script
from trunkline.mock.openai_api import MODEL, ModelMock
from trunkline.mock.recorder import Recorder
from trunkline.mock.script import load_scenarios, write_scenario
from trunkline.mock.serve import App, Mocks, bind, server_of
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient
from trunkline.telemetry.logs import set_up_logs

log = logging.getLogger("trunkline.mock")
commands = Commands(ServingGroup)
Host = Annotated[str, typer.Option(help="Address to bind. Default: 127.0.0.1.")]
Port = Annotated[int, typer.Option(help="Port to bind; 0 selects a free port.")]
Open = Annotated[
    bool, typer.Option("--open", help="Accept requests from other machines without credentials.")
]


@commands.local("serve")
def serve(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File with a scenario, or several under `agents`.")
    ],
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    open_: Open = False,
    seed: Annotated[
        int | None, typer.Option(help="Seed of random faults. Default: the seed of the file.")
    ] = None,
    openai: Annotated[
        bool, typer.Option("--openai", help="Serve FILE as a model with the chat completions API of OpenAI.")
    ] = False,
) -> None:
    """Serve mock agents until interrupted; exit code 1 if an expectation of the file is not met."""
    if openai:
        if not open_:
            _check_host(host)
        _listen(ModelMock(load_model_script(Path(file))), host, port, [("/v1", MODEL)])
        return
    scenarios = load_scenarios(file)
    if seed is not None:
        scenarios = tuple(replace(scenario, seed=seed) for scenario in scenarios)
    if not open_ and any(scenario.agent.auth is None for scenario in scenarios):
        _check_host(host)
    mocks = Mocks([Mock(scenario) for scenario in scenarios])
    _listen(mocks, host, port, [(path, mock.scenario.agent.name) for path, mock in mocks.paths()])
    wrong = [f"{mock.scenario.agent.name}: {each}" for mock in mocks.mocks for each in mock.check()]
    for each in wrong:
        print(each)
    raise typer.Exit(1 if wrong else 0)


@commands.local("record")
def record(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of the agent to record.")],
    *,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File for the scenario. Default: standard output."
        ),
    ] = "-",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    open_: Open = False,
    timing: Annotated[bool, typer.Option("--timing", help="Record the delays of the agent.")] = False,
) -> None:
    """Record an agent as a proxy until interrupted, then write a scenario that replays it."""
    if not open_:
        _check_host(host)
    file = None if output == "-" else Path(output)
    if file is not None and not file.parent.is_dir():
        raise Misuse(f"{file.parent} is no folder; name another --output")
    # Whoever names an agent may call it, wherever it is.
    egress = Egress(hosts=[urlsplit(url).hostname or ""], loopback=True)
    hosts = () if open_ else (*LOOPBACK, host)
    recorder = Recorder(url, SocketHttpClient(egress), timing=timing, hosts=hosts)
    _listen(recorder, host, port, [(recorder.path, url)])
    text = write_scenario(recorder.recording.scenario())
    if file is None:
        sys.stdout.write(text)
        return
    try:
        # What an agent said to one person is not for every account of this machine.
        write_private(file, lambda out: out.write(text.encode()))
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror}; name another --output") from None
    log.info("mock.written file=%s messages=%d", file, recorder.recording.count)


def _listen(app: App, host: str, port: int, places: list[tuple[str, str]]) -> None:
    socket = bind(host, port)
    set_up_logs("info", "text")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    shown = f"[{host}]" if ":" in host else host
    for path, name in places:
        log.info("mock.serving agent=%r url=http://%s:%d%s", name, shown, socket.getsockname()[1], path)
    server_of(app).run([socket])


def _check_host(host: str) -> None:
    if not is_loopback(host):
        raise Misuse(f"{host} lets other machines in without any credential; say --open if that is meant")
