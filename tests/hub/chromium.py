"""A headless Chromium, driven by its own protocol: the one of `make js`, or one of this machine."""

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

from tests.node import PACKAGES

# What `make js` unpacks: a program for Linux on x86-64, with libraries and fonts beside it.
_FETCHED = PACKAGES / ".chromium"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LIMIT_S = 60.0


def find_chromium() -> str:
    """The program; skips the test where there is none."""
    named = os.environ.get("CHROMIUM") or shutil.which(_FETCHED / "chromium")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), "")
    if not found:
        pytest.skip("no Chromium: run `make js` (Linux on x86-64), install one, or set CHROMIUM to its path")
    return found


def _environment(program: str) -> dict[str, str]:
    """Where the fetched program finds what a bare machine lacks; any other looks where it always does."""
    if Path(program).parent != _FETCHED:
        return {**os.environ}
    return {**os.environ, "LD_LIBRARY_PATH": str(_FETCHED / "lib"), "FONTCONFIG_PATH": str(_FETCHED)}


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
            env=_environment(program),
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

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        sent = next(self._ids)
        self._socket.send(json.dumps({"id": sent, "method": method, "params": params}))
        while (said := json.loads(self._socket.recv(timeout=_LIMIT_S))).get("id") != sent:
            continue
        return said

    def _call(self, method: str, **params: Any) -> Any:
        said = self._ask(method, **params)
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

    def click(self, selector: str) -> None:
        """Click on something; it may lead elsewhere, so the page answers before it does it."""
        self.run(f"void setTimeout(() => document.querySelector({json.dumps(selector)}).click())")

    def wait(self, script: str) -> None:
        """Wait until something is so on the page; a page that is being left answers with an error, or knows nothing."""
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            said = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
            if said.get("result", {}).get("result", {}).get("value") is True:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{script}; the page is {self.run('document.documentElement.outerHTML')}")
