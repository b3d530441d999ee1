"""`trunkline mock`: scenarios on a port, and recordings of real agents."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from trunkline.cli.private_file import write_private
from trunkline.errors import Misuse
from trunkline.http.host_check import LOOPBACK, is_loopback
from trunkline.mock.app import Mock
from trunkline.mock.recorder import Recorder
from trunkline.mock.scenario import Scenario
from trunkline.mock.script import load_scenarios, write_scenario
from trunkline.mock.serve import App, Mocks, bind, server_of
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient
from trunkline.telemetry.logs import set_up_logs

log = logging.getLogger("trunkline.mock")
STANDARD_OUTPUT = "-"


def serve(file: str, *, host: str, port: int, is_open: bool, seed: int | None = None) -> int:
    """Serve the mocks of a file until a signal; 1 if what they expect did not happen.

    Raises:
        Misuse: the file or the address is wrong.
    """
    scenarios = load_scenarios(file)
    if seed is not None:
        scenarios = tuple(replace(scenario, seed=seed) for scenario in scenarios)
    if not is_open and not all(_is_guarded(scenario) for scenario in scenarios):
        _check_host(host)
    mocks = Mocks([Mock(scenario) for scenario in scenarios])
    _listen(mocks, host, port, [(path, mock.scenario.agent.name) for path, mock in mocks.paths()])
    wrong = [f"{mock.scenario.agent.name}: {each}" for mock in mocks.mocks for each in mock.check()]
    for each in wrong:
        print(each)
    return 1 if wrong else 0


def record(url: str, output: str, *, host: str, port: int, is_open: bool, timing: bool) -> None:
    """Record the agent at a URL until a signal, then write the scenario.

    Raises:
        Misuse: the URL, the address or the file is wrong.
    """
    if not is_open:
        _check_host(host)
    file = None if output == STANDARD_OUTPUT else Path(output)
    if file is not None and not file.parent.is_dir():
        raise Misuse(f"{file.parent} is no folder; name another --output")
    # Whoever names an agent may call it, wherever it is.
    egress = Egress(hosts=[urlsplit(url).hostname or ""], loopback=True)
    hosts = () if is_open else (*LOOPBACK, host)
    recorder = Recorder(url, SocketHttpClient(egress), timing=timing, hosts=hosts)
    _listen(recorder, host, port, [(recorder.path, url)])
    text = write_scenario(recorder.scenario())
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


def _is_guarded(scenario: Scenario) -> bool:
    return scenario.agent.auth is not None


def _check_host(host: str) -> None:
    if not is_loopback(host):
        raise Misuse(f"{host} lets other machines in without any credential; say --open if that is meant")
