"""Any frames, cut anywhere, with a peer that stops taking answers at any time."""

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketbroker.common.errors import RemoteProtocolError
from tests.support.transports import ECHO, ENCODED, HOLDING, PIECES, TYPED, Handlers, connect, feed, frame

requests = st.tuples(
    st.sampled_from([ECHO, ENCODED, PIECES, HOLDING, TYPED, 9999]),
    st.one_of(st.binary(max_size=100), st.integers(0, 300_000).map(bytes)),
    st.sampled_from([0, 1]),
    st.booleans(),
)
ANSWER_CODES = {TYPED: 1, 9999: 3}


def stream_of(asked: list[tuple[int, bytes, int, bool]]) -> bytes:
    return b"".join(
        frame(code, body, number, {"a": "b"}, oneway=oneway, serialize_type=kind)
        for number, (code, body, kind, oneway) in enumerate(asked)
    )


@given(st.lists(requests, max_size=12), st.data())
@settings(max_examples=150, deadline=None)
def test_each_request_is_handled_once_in_order(asked: list[tuple[int, bytes, int, bool]], data: st.DataObject):
    stream = stream_of(asked)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    blocked_at = data.draw(st.sets(st.integers(0, len(cuts)), max_size=3))

    async def run() -> None:
        handlers = Handlers()
        connection, transport, _ = connect(handlers.routes())
        edges = [0, *cuts, len(stream)]
        for number, (start, end) in enumerate(itertools.pairwise(edges)):
            transport.blocked = transport.blocked or number in blocked_at
            feed(connection, stream[start:end])
            # A large read ends the connection's turn, and a blocked peer stops it.
            while not transport.reading:
                transport.drained()
                await asyncio.sleep(0)
        transport.drained()

        assert [body for _, body in handlers.seen] == [body for code, body, _, _ in asked if code in (ECHO, HOLDING)]
        assert [(answer.opaque, answer.code) for answer in transport.answers] == [
            (number, ANSWER_CODES.get(code, 0))
            for number, (code, _, _, oneway) in enumerate(asked)
            if code != HOLDING and not oneway
        ]
        assert transport.reading
        assert not transport.closed

    asyncio.run(run())


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
@settings(max_examples=300, deadline=None)
def test_no_bytes_fail_a_connection(noise: bytes, cuts: list[int]):
    async def run() -> None:
        handlers = Handlers()
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(ECHO, b"first", 1))
        try:
            feed(connection, noise, [cut for cut in cuts if cut <= len(noise)])
        except RemoteProtocolError as error:  # the peer gets the error, not the event loop
            raise AssertionError(noise) from error
        await endpoint.tasks.stop()
        assert transport.answers[0].opaque == 1

    asyncio.run(run())


@given(st.binary(min_size=1, max_size=60), st.integers(0, 1), st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_no_header_makes_a_connection_fail(noise: bytes, kind: int, cut: int):
    """Frames whose lengths are right and whose header is anything."""
    whole = (4 + len(noise)).to_bytes(4, "big") + bytes([kind]) + len(noise).to_bytes(3, "big") + noise

    async def run() -> None:
        connection, transport, endpoint = connect(Handlers().routes())
        feed(connection, whole, [min(cut, len(whole))])
        await endpoint.tasks.stop()
        for answer in transport.answers:
            assert answer.code != 0 or transport.closed

    asyncio.run(run())
