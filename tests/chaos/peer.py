"""An agent elsewhere whose tasks outlive it: `python -m tests.chaos.peer PORT FILE knows|forgets|old`.

What it has taken is a line of a file, and the state of a task follows from its lines and the time. One that
`knows` says that it deduplicates, and does; one that `forgets` makes a task of every message, also of one that
comes twice, so that whoever reads the file sees what was sent twice. So does the `old` one, which speaks 0.3
alone and has streams, whose events have no ids.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import uvicorn

from tests.chaos.client import now_ms
from trunkline.wire.service_parameters import IDEMPOTENT_SEND

KNOWS, FORGETS, OLD = "knows", "forgets", "old"
_ASK_MS, _ANSWER_MS = 100, 200
_CARD = "/.well-known/agent-card.json"


class Peer:
    """The application; a text is `work MILLISECONDS …` or `ask …`."""

    def __init__(self, port: int, file: Path, kind: str) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._file = file
        self._kind = kind
        self._tasks: dict[str, dict[str, Any]] = {}
        self._messages: dict[str, str] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                self._take(json.loads(line))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if scope["method"] == "GET":
            await _answer(send, self._card() if scope["path"] == _CARD else None)
            return
        body = b""
        while True:
            piece = await receive()
            body += piece.get("body", b"")
            if not piece.get("more_body"):
                break
        asked = json.loads(body)
        params = asked.get("params", {})
        if self._kind == OLD:
            await self._answer_of_old(send, asked)
            return
        if asked["method"] == "SendMessage":
            parent = dict(scope["headers"]).get(b"x-parent-id", b"").decode()
            result: Any = {"task": self._show(self._said(params["message"], parent))}
        elif (task := self._tasks.get(params.get("id", ""))) is None:
            error = {"code": -32001, "message": "there is no such task"}
            await _answer(send, {"jsonrpc": "2.0", "id": asked["id"], "error": error})
            return
        else:
            result = self._show(task)
        await _answer(send, {"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def _answer_of_old(self, send: Any, asked: dict[str, Any]) -> None:
        """What an agent of 0.3 says."""
        method, params = asked["method"], asked["params"]
        is_said = method in ("message/send", "message/stream")
        task = self._said(params["message"]) if is_said else self._tasks.get(params["id"])
        if task is None:
            error = {"code": -32001, "message": "there is no such task"}
            await _answer(send, {"jsonrpc": "2.0", "id": asked["id"], "error": error})
        elif method == "message/stream":
            await self._stream(send, asked["id"], task)
        else:
            await _answer(send, {"jsonrpc": "2.0", "id": asked["id"], "result": _old(self._show(task))})

    async def _stream(self, send: Any, request: Any, task: dict[str, Any]) -> None:
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})

        async def frame(result: dict[str, Any]) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode()
            await send({"type": "http.response.body", "body": b"data: " + body + b"\n\n", "more_body": True})

        shown = _old(self._show(task))
        await frame({**shown, "artifacts": []})
        ids, told, final = {"taskId": shown["id"], "contextId": shown["contextId"]}, "", False
        while not final:
            shown = _old(self._show(task))
            text = "".join([one["parts"][0]["text"] for one in shown["artifacts"]])
            if more := text[len(told) :]:
                artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": more}]}
                await frame({"kind": "artifact-update", **ids, "artifact": artifact, "append": bool(told)})
                told = text
            final = shown["status"]["state"] != "working"
            if not final:
                await asyncio.sleep(0.03)
        await frame({"kind": "status-update", **ids, "status": shown["status"], "final": True})
        await send({"type": "http.response.body", "body": b""})

    def _said(self, message: dict[str, Any], parent: str = "") -> dict[str, Any]:
        known = self._messages.get(message["messageId"])
        if known is not None and self._kind == KNOWS:
            return self._tasks[known]
        text = "".join([part.get("text", "") for part in message["parts"]])
        line = {
            "task": message.get("taskId") or str(uuid.uuid4()), "context": message.get("contextId", "c"),
            "text": text, "message": message["messageId"], "at": now_ms(), "new": "taskId" not in message,
            "parent": parent,
        }  # fmt: skip
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return self._take(line)

    def _take(self, line: dict[str, Any]) -> dict[str, Any]:
        self._messages[line["message"]] = line["task"]
        if line["new"]:
            self._tasks[line["task"]] = line
        else:
            self._tasks[line["task"]].setdefault("answer", line)
        return self._tasks[line["task"]]

    def _show(self, task: dict[str, Any]) -> dict[str, Any]:
        word, answer, past = task["text"].split(), task.get("answer"), now_ms() - task["at"]
        state, text = "WORKING", ""
        if word[0] == "work" and past > int(word[1]):
            state, text = "COMPLETED", f"did {task['text']}"
        elif word[0] == "work" and self._kind == OLD:
            # It writes while it works.
            whole = f"did {task['text']}"
            text = whole[: len(whole) * past // max(int(word[1]), 1)]
        elif word[0] == "ask" and answer is not None:
            if now_ms() - answer["at"] > _ANSWER_MS:
                state, text = "COMPLETED", f"heard {answer['text']}"
        elif word[0] == "ask" and past > _ASK_MS:
            state = "INPUT_REQUIRED"
        status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
        if state == "INPUT_REQUIRED":
            said = {"messageId": f"{task['task']}-q", "role": "ROLE_AGENT", "parts": [{"text": "Which one?"}]}
            status["message"] = said
        artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
        return {"id": task["task"], "contextId": task["context"], "status": status, "artifacts": artifacts}

    def _card(self) -> dict[str, Any]:
        if self._kind == OLD:
            return {
                "protocolVersion": "0.3.0", "name": OLD, "description": "Outlives itself.", "version": "1",
                "url": f"{self._base}/rpc", "preferredTransport": "JSONRPC", "capabilities": {"streaming": True},
                "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
                "skills": [{"id": OLD, "name": OLD, "description": "Works.", "tags": []}],
            }  # fmt: skip
        extensions = [{"uri": IDEMPOTENT_SEND}] if self._kind == KNOWS else []
        return {
            "name": self._kind, "description": "Outlives itself.", "version": "1",
            "supportedInterfaces": [{"url": f"{self._base}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": False, "pushNotifications": False, "extensions": extensions},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": self._kind, "name": self._kind, "description": "Works.", "tags": []}],
        }  # fmt: skip


def _old(task: dict[str, Any]) -> dict[str, Any]:
    """A task of 1.0 as one of 0.3."""
    text = json.dumps({"kind": "task", **task})
    for state in ("WORKING", "COMPLETED", "INPUT_REQUIRED"):
        text = text.replace(f"TASK_STATE_{state}", state.lower().replace("_", "-"))
    text = text.replace('"ROLE_AGENT"', '"agent", "kind": "message"').replace(
        '{"text":', '{"kind": "text", "text":'
    )
    return json.loads(text)


async def _answer(send: Any, body: Any) -> None:
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 404 if body is None else 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


if __name__ == "__main__":
    _, _port, _path, _named = sys.argv
    uvicorn.run(Peer(int(_port), Path(_path), _named), port=int(_port), log_level="error", lifespan="off")
