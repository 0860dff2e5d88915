"""Tests of FrameReader: frames cut anywhere, broken ones, limits of headers and bodies."""

import os

import pytest

from rocketbroker.codec.remoting.frame import SERIALIZE_JSON, SERIALIZE_ROCKETMQ
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.transport.peer_limits import ConnectionLimits
from tests.support.transports import ECHO, ENCODED, HOLDING, LATER, PIECES, TYPED, Handlers, connect, feed, frame
from tests.support.waiting import turns

TYPED_HEADER = GetMinOffsetRequestHeader("T", 3)
LIMITS = ConnectionLimits(max_header_length=1_000, max_request_body_size=10_000)
KINDS = pytest.mark.parametrize("kind", [SERIALIZE_JSON, SERIALIZE_ROCKETMQ])


class TestFrames:
    STREAM = b"".join(
        (
            frame(ECHO, b"first", 1),
            frame(TYPED, b"", 2, TYPED_HEADER),
            frame(ECHO, b"x" * 300, 3, serialize_type=SERIALIZE_ROCKETMQ),
            frame(ENCODED, b"", 4),
            frame(PIECES, b"", 5),
            frame(ECHO, b"", 6, oneway=True),
        )
    )
    SEEN = ((ECHO, b"first"), (TYPED, b""), (ECHO, b"x" * 300), (ECHO, b""))

    async def test_several_in_one_read_are_answered_by_one_write(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, self.STREAM)

        assert transport.writes == 1
        assert [answer.opaque for answer in transport.answers] == [1, 2, 3, 4, 5]
        assert [bytes(answer.body) for answer in transport.answers[:3]] == [b"first", b"", b"x" * 300]
        assert all(answer.is_response and answer.code == 0 for answer in transport.answers)
        assert handlers.seen == list(self.SEEN)

    async def test_byte_by_byte(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, self.STREAM, range(1, len(self.STREAM)))

        assert [answer.opaque for answer in transport.answers] == [1, 2, 3, 4, 5]
        assert handlers.seen == list(self.SEEN)

    async def test_cut_at_any_place(self):
        for cut in range(1, len(self.STREAM)):
            handlers = Handlers()
            connection, transport, _ = connect(handlers.routes())

            feed(connection, self.STREAM, [cut])

            assert [answer.opaque for answer in transport.answers] == [1, 2, 3, 4, 5], cut
            assert handlers.seen == list(self.SEEN), cut

    async def test_larger_than_the_buffer_with_others_around_it(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        large = os.urandom(700_000)

        feed(connection, frame(ECHO, b"a", 1) + frame(ECHO, large, 2) + frame(ECHO, b"b", 3))
        await turns()

        assert [body for _, body in handlers.seen] == [b"a", large, b"b"]
        assert [bytes(answer.body) for answer in transport.answers] == [b"a", large, b"b"]

    async def test_a_frame_of_a_header_alone(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        header = b'{"code":310}'

        feed(connection, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)

        assert [answer.code for answer in transport.answers] == [0]

    async def test_a_header_in_another_order(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        header = b' {"opaque":9,"flag":0, "code":31,"extFields":{"queueId":3,"topic":"T"}}\n'

        feed(connection, (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)

        assert [(answer.code, answer.opaque) for answer in transport.answers] == [(0, 9)]

    async def test_many_in_one_read_are_written_in_parts(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, b"".join(frame(ECHO, b"", number) for number in range(1000)))

        assert [answer.opaque for answer in transport.answers] == list(range(1000))
        assert 1 < transport.writes < 50


class TestBrokenPeers:
    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\xff\xff\xff\xff" + bytes(8), "frame length -1 is below the minimum of 4"),
            (bytes(12), "frame length 0 is below the minimum of 4"),
            ((20_001).to_bytes(4, "big") + bytes(8), "frame length 20001 exceeds the limit of 20000 bytes"),
            (b"GET / HTTP/1.1\r\n\r\n", "the peer speaks HTTP; this port serves"),
            (b"OPTIONS * HTTP/1.1\r\n\r\n", "the peer speaks HTTP; this port serves"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the peer speaks HTTP/2, as gRPC clients do"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "the peer speaks TLS, and this side does not"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer answers in HTTP"),
            ((8).to_bytes(4, "big") + (100).to_bytes(4, "big") + bytes(4), "header length 100 exceeds the 4 bytes"),
            ((8).to_bytes(4, "big") + b"\x07\0\0\x04" + bytes(4), "header encoding 7 is unknown"),
            ((8).to_bytes(4, "big") + b"\0\0\0\x04[{}]", "JSON header"),
            ((8).to_bytes(4, "big") + b"\0\0\0\x04{\xff\xfe}", "JSON header"),
            ((6).to_bytes(4, "big") + b"\x01\0\0\x02\x01\x36", ""),
            ((4).to_bytes(4, "big") + b"\x01\0\0\0", ""),
        ],
    )
    async def test_are_answered_with_the_reason_and_closed(self, handlers: Handlers, data: bytes, text: str):
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(20_000))

        feed(connection, frame(ECHO, b"before", 5) + data + frame(ECHO, b"after", 6))

        good, last = transport.answers
        assert (good.opaque, last.code) == (5, 1)
        assert text in (last.remark or "")
        assert transport.closed
        assert [body for _, body in handlers.seen] == [b"before"]

    @pytest.mark.parametrize("length", [-1, 0, 3, 20_001, 2**31 - 1])
    async def test_a_wrong_length_is_judged_before_anything_follows_it(self, handlers: Handlers, length: int):
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(20_000))

        feed(connection, frame(ECHO, b"before", 5) + length.to_bytes(4, "big", signed=True))

        good, last = transport.answers
        assert (good.opaque, last.code) == (5, 1)
        assert f"frame length {length} " in (last.remark or "")
        assert transport.closed

    async def test_a_frame_of_just_the_limit_is_served(self, handlers: Handlers):
        whole = frame(ECHO, b"x" * 500)
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(len(whole) - 4))

        feed(connection, whole)

        assert [answer.code for answer in transport.answers] == [0]


class TestHeaders:
    @KINDS
    async def test_a_longer_one_ends_the_connection_with_a_reason(self, handlers: Handlers, kind: int):
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, b"", 1, {"a": "b" * 1_000}, serialize_type=kind))

        assert handlers.seen == []
        assert transport.closed
        assert "exceeds the limit of 1000 bytes (maxHeaderLength)" in str(transport.answers[0].remark)

    @KINDS
    async def test_it_is_judged_before_the_frame_is_whole(self, handlers: Handlers, kind: int):
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, b"", 1, {"a": "b" * 1_000}, serialize_type=kind)[:9])

        assert transport.closed

    @KINDS
    async def test_one_at_the_limit_is_served(self, handlers: Handlers, kind: int):
        short = frame(ECHO, b"", 1, {"a": ""}, serialize_type=kind)
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, b"", 1, {"a": "b" * (1_008 - len(short))}, serialize_type=kind))

        assert [answer.code for answer in transport.answers] == [0]

    @KINDS
    async def test_the_properties_of_a_message_fit_however_they_are_written(self, handlers: Handlers, kind: int):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(ECHO, b"", 1, {"i": "\x01" * 32_767}, serialize_type=kind))

        assert [answer.code for answer in transport.answers] == [0]


class TestBodies:
    @KINDS
    @pytest.mark.parametrize("code", [ECHO, LATER, TYPED])
    async def test_a_longer_one_is_rejected_and_the_connection_continues(
        self, handlers: Handlers, kind: int, code: int
    ):
        routes = {number: Route(number, route.process) for number, route in handlers.routes().items()}
        connection, transport, endpoint = connect(routes, limits=LIMITS)

        feed(connection, frame(code, bytes(10_001), 7, serialize_type=kind) + frame(ECHO, b"next", 8))

        assert [(answer.opaque, answer.code) for answer in transport.answers] == [(7, 1), (8, 0)]
        assert "10,001 bytes, above the limit of 10,000" in str(transport.answers[0].remark)
        assert "raise maxRequestBodySize" in str(transport.answers[0].remark)
        assert handlers.seen == [(ECHO, b"next")]
        assert endpoint.held_bytes == 0

    async def test_one_at_the_limit_is_served(self, handlers: Handlers):
        routes = {ECHO: Route(ECHO, handlers.routes()[ECHO].process)}
        connection, transport, _ = connect(routes, limits=LIMITS)

        feed(connection, frame(ECHO, bytes(10_000)))

        assert transport.answers[0].code == 0

    async def test_messages_are_bounded_by_their_own_limit(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=LIMITS)

        feed(connection, frame(ECHO, bytes(100_000)))

        assert transport.answers[0].code == 0

    async def test_nothing_is_answered_to_one_that_wants_no_answer(self, handlers: Handlers):
        routes = {HOLDING: Route(HOLDING, handlers.routes()[HOLDING].process)}
        connection, transport, _ = connect(routes, limits=LIMITS)

        feed(connection, frame(HOLDING, bytes(10_001), oneway=True))

        assert (handlers.seen, bytes(transport.written)) == ([], b"")
        assert connection.send_oneway(request(ECHO))
