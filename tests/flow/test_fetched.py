"""Workflows by their addresses: what is fetched is read, checked and pinned; what cannot be had fails its node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.flow.surfaces import workflow
from trunkline.flow.definition.canonical import definition_hash
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.local import LocalFlows
from trunkline.net.egress import Egress

SET = {"id": "set", "type": "set_state", "config": {"assignments": {"from": {"literal": "afar"}}}}
CHILD = workflow(SET, name="Afar")


@asynccontextmanager
async def site(pages: dict[str, tuple[int, bytes]]) -> AsyncGenerator[str]:
    """A web server on a socket that has these pages."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, body = pages.get(path, (404, b""))
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def nesting(ref: str, **more: Any) -> dict[str, Any]:
    return workflow(
        {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": ref, "input_mapping": {}, **more}}
    )


async def outcome(flows: LocalFlows, document: dict[str, Any]) -> tuple[str, str]:
    result = await (await flows.start(document, {})).wait()
    return result.status, result.code or str(result.final_state)


async def test_a_workflow_is_fetched_by_its_address() -> None:
    pages = {
        "/good": (200, msgspec.json.encode(CHILD)),
        "/list": (200, b"[]"),
        "/odd": (200, b"{"),
        "/deep": (200, b'{"a":' + b"[" * 30_000),
        "/bytes": (200, b'{"a":"\xff"}'),
        "/broken": (200, b"{}"),
        "/large": (200, b" " * ((2 << 20) + 1)),
        "/fault": (500, b"{}"),
    }
    async with site(pages) as base, LocalFlows(egress=Egress(loopback=True)) as flows:
        assert await outcome(flows, nesting(f"{base}/good")) == ("completed", "{'from': 'afar'}")
        pinned = nesting(f"{base}/good", version_pin=definition_hash(CHILD))
        assert (await outcome(flows, pinned))[0] == "completed"
        other = nesting(f"{base}/good", version_pin="0" * 64)
        assert await outcome(flows, other) == ("failed", "VALIDATION_ERROR")
        for page in ("/list", "/odd", "/deep", "/bytes", "/large", "/fault", "/none"):
            assert await outcome(flows, nesting(base + page)) == ("failed", "WORKFLOW_NOT_FOUND"), page
        assert await outcome(flows, nesting(f"{base}/broken")) == ("failed", "VALIDATION_ERROR")
        # What is known here by this name is not fetched.
        flows.engine.workflows.add(f"{base}/none", CHILD)
        assert (await outcome(flows, nesting(f"{base}/none")))[0] == "completed"


async def test_refused_addresses_and_unknown_names_have_one_text() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if host == "unknown.test":
            raise OSError("no such name")
        return ["10.0.0.7" if host == "database.test" else "169.254.169.254"]

    texts: set[str] = set()
    async with LocalFlows(egress=Egress(resolver=resolve)) as flows:
        for host in ("database.test", "metadata.test", "unknown.test", "127.0.0.1"):
            result = await (await flows.start(nesting(f"https://{host}/flow"), {})).wait()
            assert result.code == "WORKFLOW_NOT_FOUND"
            texts.add(str(result.error).replace(host, "HOST"))
    assert len(texts) == 1


async def test_addresses_obey_the_guard_and_the_policy_of_signatures() -> None:
    async with site({"/good": (200, msgspec.json.encode(CHILD))}) as base:
        async with LocalFlows() as guarded:
            assert await outcome(guarded, nesting(f"{base}/good")) == ("failed", "WORKFLOW_NOT_FOUND")
        signed = SignaturePolicy("require")
        async with LocalFlows(egress=Egress(loopback=True), signatures=signed) as strict:
            assert await outcome(strict, nesting(f"{base}/good")) == ("failed", "VALIDATION_ERROR")
