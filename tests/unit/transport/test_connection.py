"""What a connection makes of the bytes that come: frames, batches of them, and what is none."""

import errno
import os

import pytest

from rocketbroker.codec.remoting.frame import SERIALIZE_ROCKETMQ
from rocketbroker.codec.remoting.headers.offset import GetMinOffsetRequestHeader
from rocketbroker.transport.connection_limits import ConnectionLimits
from tests.support.transports import (
    ECHO,
    ENCODED,
    PIECES,
    TYPED,
    FakeTransport,
    Handlers,
    connect,
    feed,
    frame,
)

TYPED_HEADER = GetMinOffsetRequestHeader("T", 3)


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
            (b"GET / HTTP/1.1\r\n\r\n", "exceeds the limit"),
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


class TestBatchEnd:
    async def test_it_comes_after_the_last_frame_and_before_the_answers(self, handlers: Handlers):
        seen: list[tuple[int, int]] = []
        connection, transport, endpoint = connect(handlers.routes())
        endpoint.on_batch_end = lambda: seen.append((len(handlers.seen), transport.writes))

        feed(connection, frame(ECHO) * 3)
        feed(connection, frame(ECHO)[:5])

        assert seen[0] == (3, 0)

    async def test_it_comes_before_each_part_of_many_answers(self, handlers: Handlers):
        ended: list[int] = []
        connection, transport, endpoint = connect(handlers.routes())
        endpoint.on_batch_end = lambda: ended.append(transport.writes)

        feed(connection, frame(ECHO) * 300)

        assert transport.writes > 1
        assert ended == list(range(len(ended))), "each write has one end of a batch before it"
        assert len(ended) == transport.writes

    async def test_an_error_that_stays_is_logged_once_until_it_passes_or_changes(self, handlers: Handlers, caplog):
        errors = iter(["no room", "no room", "", "no room", "no disk", "no disk"])

        def end() -> None:
            if error := next(errors):
                raise OSError(error)

        connection, _, _ = connect(handlers.routes(), on_batch_end=end)

        for _ in range(6):
            feed(connection, frame(ECHO))

        logged = [record.exc_info[1].args for record in caplog.records if record.exc_info]
        assert logged == [("no room",), ("no room",), ("no disk",)]

    async def test_its_error_is_logged_and_the_answers_go_out(self, handlers: Handlers, caplog):
        def fail() -> None:
            raise OSError(errno.ENOSPC, "no room")

        connection, transport, _ = connect(handlers.routes(), on_batch_end=fail)

        feed(connection, frame(ECHO, b"", 7))

        assert [answer.opaque for answer in transport.answers] == [7]
        assert "no room" in caplog.text


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("192.0.2.7", 10911), "c000020700002a9f"),
        (("::ffff:192.0.2.7", 10911, 0, 0), "c000020700002a9f"),
        (("2001:db8::1", 10911, 0, 0), "20010db800000000000000000000000100002a9f"),
        (("fe80::1%lo", 1, 0, 1), "fe80000000000000000000000000000100000001"),
    ],
)
async def test_a_peer_as_records_hold_it(address, expected: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeTransport, "get_extra_info", lambda _, name: address if name == "peername" else None)

    assert connect({})[0].remote_host.hex() == expected
