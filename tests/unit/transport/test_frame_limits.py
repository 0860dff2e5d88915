"""Limits of headers and bodies, which hold before anything is copied or decoded."""

import pytest

from rocketbroker.codec.remoting.frame import SERIALIZE_JSON, SERIALIZE_ROCKETMQ
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.transport.connection_limits import ConnectionLimits
from tests.support.transports import ECHO, HOLDING, LATER, TYPED, Handlers, connect, feed, frame

LIMITS = ConnectionLimits(max_header_length=1_000, max_request_body_size=10_000)
KINDS = pytest.mark.parametrize("kind", [SERIALIZE_JSON, SERIALIZE_ROCKETMQ])


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
