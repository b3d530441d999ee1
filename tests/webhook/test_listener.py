"""The listener that checks, the tour and tests share."""

from __future__ import annotations

import socket
import threading

import pytest

from trunkline.webhook.listener import IncomingWebhook, WebhookListener

POST = b"POST /a?b HTTP/1.1\r\nHost: x\r\nX-Token: t\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def said(port: int, raw: bytes, host: str = "127.0.0.1") -> bytes:
    with socket.create_connection((host, port), 5) as connection:
        connection.sendall(raw)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", ""])
def test_it_gives_what_came_and_answers_as_told(address: str) -> None:
    came: list[IncomingWebhook] = []

    def answer(webhook: IncomingWebhook) -> tuple[int, dict[str, str]]:
        came.append(webhook)
        return 429, {"Retry-After": "7"}

    listener = WebhookListener(answer, address)
    try:
        head = said(listener.port, POST)
    finally:
        listener.close()
    assert head.startswith(b"HTTP/1.1 429") and b"Retry-After: 7\r\n" in head
    (one,) = came
    assert (one.path, one.headers["x-token"], one.body) == ("/a?b", "t", b"{}")


def test_who_says_nothing_is_not_waited_for() -> None:
    listener = WebhookListener(lambda _: 200, idle_s=0.05)
    try:
        assert said(listener.port, b"POST / HTTP/1.1\r\n") == b""
    finally:
        listener.close()


def test_one_that_is_slow_keeps_nobody_else_waiting() -> None:
    gate = threading.Event()

    def answer(webhook: IncomingWebhook) -> int:
        if webhook.body == b"{}":
            gate.wait(60)
        return 200

    listener = WebhookListener(answer)
    slow = threading.Thread(target=said, args=(listener.port, POST))
    slow.start()
    try:
        assert b" 200 " in said(listener.port, POST.replace(b"{}", b"[]"))
        assert slow.is_alive()
    finally:
        gate.set()
        slow.join(60)
        listener.close()
