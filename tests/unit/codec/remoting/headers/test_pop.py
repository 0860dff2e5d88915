"""Headers, texts and bodies of POP against what Apache's broker answered (tests/golden/pop)."""

import pytest

from rocketbroker.codec.message.message_decoder import decode_messages
from rocketbroker.codec.message.message_properties import get_property
from rocketbroker.codec.message.pop_info import (
    decode_extra_info,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_start_offset_info,
)
from rocketbroker.codec.remoting.bodies import pop as bodies
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.headers import pop as headers
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader, from_ext_fields, to_ext_fields
from tests.support.pop_script import PopExchange, golden_exchanges

REQUESTS: dict[int, type[CommandCustomHeader]] = {
    200050: headers.PopMessageRequestHeader,
    200051: headers.AckMessageRequestHeader,
    200052: headers.PeekMessageRequestHeader,
    200053: headers.ChangeInvisibleTimeRequestHeader,
    200054: headers.NotificationRequestHeader,
    200055: headers.PollingInfoRequestHeader,
}
RESPONSES: dict[int, type[CommandCustomHeader]] = {
    200050: headers.PopMessageResponseHeader,
    200052: headers.PopMessageResponseHeader,
    200053: headers.ChangeInvisibleTimeResponseHeader,
    200054: headers.NotificationResponseHeader,
    200055: headers.PollingInfoResponseHeader,
}
BODIES: dict[int, type[RemotingSerializable]] = {
    400: bodies.QueryAssignmentResponseBody,
}


def name_of(exchange: PopExchange) -> str:
    return exchange.name


def finds_something(exchange: PopExchange) -> bool:
    return exchange.question().code == 200050 and exchange.answer().code == 0


@pytest.mark.parametrize("exchange", golden_exchanges(), ids=name_of)
def test_recorded_exchanges_decode_and_encode_to_the_same_texts(exchange: PopExchange):
    question, answer = exchange.question(), exchange.answer()
    checked = 0
    for command, types in ((question, REQUESTS), (answer, RESPONSES)):
        if question.code in types and command.header:
            texts = to_ext_fields(from_ext_fields(command.header, types[question.code])) or {}
            assert {name: texts.get(name) for name in command.header} == command.header
            checked += 1
    if question.code in BODIES:
        body = BODIES[question.code].decode(answer.body)
        assert body == BODIES[question.code].decode(body.encode())
        checked += 1
    assert checked or question.code in (200151, 401), "the exchange has nothing that is checked"


@pytest.mark.parametrize("exchange", [*filter(finds_something, golden_exchanges())], ids=name_of)
def test_the_texts_of_a_pop_name_its_messages(exchange: PopExchange):
    answer = exchange.answer()
    fields = answer.header
    offsets = parse_msg_offset_info(fields["msgOffsetInfo"])
    starts = parse_start_offset_info(fields["startOffsetInfo"])
    messages = decode_messages(bytes(answer.body))

    assert starts.keys() == offsets.keys()
    assert [each.queue_offset for each in messages] == [each for found in offsets.values() for each in found]
    for count in parse_order_count_info(fields.get("orderCountInfo", "")).values():
        assert count >= 0
    queues = [queue for queue, found in offsets.items() for _ in found]
    for queue, message in zip(queues, messages, strict=True):
        carried = get_property(message.properties_bytes, b"POP_CK")
        assert (carried is None) is (queue.retry == "0")
        if carried is not None:
            text = bytes(carried).decode()
            handle = decode_extra_info(text)
            assert handle.encode() == text
            assert (handle.pop_time, handle.queue_offset) == (int(fields["popTime"]), message.queue_offset)
