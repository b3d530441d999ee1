from __future__ import annotations

from hypothesis import given

from tests.wire import samples
from trunkline.wire import v1
from trunkline.wire.read import read_send
from trunkline.wire.types import Message
from trunkline.wire.v03 import V03 as v03
from trunkline.wire.v03 import V03_PROTO as v03proto
from trunkline.wire.writer import Dialect


@given(samples.messages())
def test_round_trip_v1(message: Message) -> None:
    written = v1.message(message)
    read = read_send(samples.sent(written)).message
    assert read == message
    assert v1.message(read) == written


@given(samples.messages())
def test_round_trip_v03(message: Message) -> None:
    written = v03.message(message)
    read = read_send(samples.sent(written)).message
    assert read.extra == message.extra
    assert v03.message(read) == written


@given(samples.messages())
def test_round_trip_v03proto(message: Message) -> None:
    written = v03proto.message(message)
    assert v03proto.message(read_send(samples.sent(written), Dialect.V03_PROTO).message) == written
