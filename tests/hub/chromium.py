"""A headless Chromium of this machine, driven by its own protocol; where there is none, tests are skipped and say so."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LIMIT_S = 60.0


def find_chromium() -> str:
    """The program; skips the test where there is none."""
    named = os.environ.get("CHROMIUM", "")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), "")
    if not found:
        pytest.skip("no Chromium on this machine: install chromium, or set CHROMIUM to its path")
    return found


class Chromium:
    """One browser with one page."""

    def __init__(self, program: str) -> None:
        self._profile = Path(tempfile.mkdtemp(prefix="chromium-"))
        flags = (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        )
        self._process = subprocess.Popen(
            [program, *flags, f"--user-data-dir={self._profile}", "--remote-debugging-port=0", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._ids = itertools.count(1)
        self._stack = ExitStack()
        self._stack.callback(self._end)

    def __enter__(self) -> Chromium:
        try:
            return self._begin()
        except BaseException:
            self._stack.close()
            raise

    def _begin(self) -> Chromium:
        written = self._profile / "DevToolsActivePort"
        deadline = time.monotonic() + _LIMIT_S
        while not (written.exists() and re.match(r"\d+\n", written.read_text())):
            assert self._process.poll() is None and time.monotonic() < deadline, "Chromium does not start"
            time.sleep(0.05)
        port = written.read_text().split("\n")[0]
        pages = httpx2.get(f"http://127.0.0.1:{port}/json/list").json()
        url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._socket = self._stack.enter_context(connect(url, max_size=None))
        self._call("Page.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _call(self, method: str, **params: Any) -> Any:
        sent = next(self._ids)
        self._socket.send(json.dumps({"id": sent, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=_LIMIT_S))
            if said.get("id") == sent:
                assert "error" not in said, said
                return said["result"]

    def go(self, url: str) -> None:
        """Go to an address, and be there."""
        self._call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """What a script of the page gives, or the promise that it gives."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until something is so on the page; a page that is being left knows nothing."""
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
            if answer["result"].get("value") is True:
                return
            time.sleep(0.05)
        raise TimeoutError(script)
