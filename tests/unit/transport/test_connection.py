import asyncio
import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketbroker.codec.remoting.frame import SERIALIZE_ROCKETMQ, encode_frame
from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.headers.offset import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.common.errors import RemotingSendError, RemotingTimeoutError
from rocketbroker.transport.connection import host_bytes
from rocketbroker.transport.endpoint import ConnectionLimits
from tests.support.transports import (
    ECHO,
    ENCODED,
    FAILING,
    FUTURE,
    LATER,
    PIECES,
    REFUSING,
    SILENT,
    TYPED,
    Handlers,
    connect,
    feed,
    frame,
)
from tests.support.waiting import until

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
            (b"\xff\xff\xff\xff" + bytes(8), "frame length -1 is below the 4 bytes"),
            (bytes(12), "frame length 0 is below the 4 bytes"),
            ((20_001).to_bytes(4, "big") + bytes(8), "frame length 20001 is over the limit of 20000 bytes"),
            (b"GET / HTTP/1.1\r\n\r\n", "is over the limit"),
            ((8).to_bytes(4, "big") + (100).to_bytes(4, "big") + bytes(4), "header length 100 is over the 4 bytes"),
            ((8).to_bytes(4, "big") + b"\x07\0\0\x04" + bytes(4), "header encoding 7 is unknown"),
            ((8).to_bytes(4, "big") + b"\0\0\0\x04[{}]", "JSON header"),
            ((8).to_bytes(4, "big") + b"\0\0\0\x04{\xff\xfe}", "JSON header"),
            ((6).to_bytes(4, "big") + b"\x01\0\0\x02\x01\x36", ""),
            ((4).to_bytes(4, "big") + b"\x01\0\0\0", ""),
        ],
    )
    async def test_are_told_why_and_closed(self, handlers: Handlers, data: bytes, text: str):
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
        assert f"frame length {length} is" in (last.remark or "")
        assert transport.closed

    async def test_a_frame_of_just_the_limit_is_served(self, handlers: Handlers):
        whole = frame(ECHO, b"x" * 500)
        connection, transport, _ = connect(handlers.routes(), limits=ConnectionLimits(len(whole) - 4))

        feed(connection, whole)

        assert [answer.code for answer in transport.answers] == [0]


class TestAnswers:
    async def test_an_unknown_code(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(9999, b"", 3) + frame(ECHO, b"", 4))

        unknown, known = transport.answers
        assert (unknown.code, unknown.remark, unknown.opaque) == (3, " request type 9999 not supported", 3)
        assert known.code == 0

    @pytest.mark.parametrize("serialize_type", [0, 1])
    async def test_a_missing_field(self, handlers: Handlers, serialize_type: int):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(TYPED, b"", 3, {"topic": "T"}, serialize_type=serialize_type))

        (answer,) = transport.answers
        assert (answer.code, answer.opaque) == (1, 3)
        assert "<queueId> is missing" in (answer.remark or "")
        assert not transport.closed

    async def test_a_missing_field_of_a_oneway_request(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(TYPED, b"", 3, {"topic": "T"}, oneway=True) + frame(9999, oneway=True))

        assert transport.answers == []

    async def test_errors_of_handlers(self, handlers: Handlers, caplog):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(FAILING, b"", 1) + frame(REFUSING, b"", 2) + frame(ECHO, b"", 3))

        failed, refused, fine = transport.answers
        assert (failed.code, failed.remark) == (1, "KeyError: 'what was missing'")
        assert (refused.code, refused.remark) == (17, "no such topic")
        assert fine.code == 0
        assert "request code 50 failed" in caplog.text

    async def test_nothing_is_sent_for_none(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        feed(connection, frame(SILENT, b"kept"))
        assert (transport.writes, handlers.seen) == (0, [(SILENT, b"kept")])

        connection.reply(8, response(0, "later"))
        (answer,) = transport.answers
        assert (answer.opaque, answer.remark, answer.is_response) == (8, "later", True)

    async def test_a_coroutine_answers_when_it_is_done_and_has_its_own_body(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())

        feed(connection, frame(LATER, b"mine", 1) + frame(ECHO, b"at once", 2))
        feed(connection, frame(ECHO, b"x" * 4, 3))
        assert [answer.opaque for answer in transport.answers] == [2, 3]
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 3)

        assert (transport.answers[2].opaque, bytes(transport.answers[2].body)) == (1, b"mine")
        await endpoint.tasks.stop()

    async def test_a_future_answers_when_it_is_done(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(FUTURE, b"", 1))
        assert handlers.future
        handlers.future.set_exception(OSError(errno.EIO, "disk"))
        await until(lambda: transport.answers)

        (answer,) = transport.answers
        assert (answer.code, answer.opaque) == (1, 1)
        assert "disk" in (answer.remark or "")
        await endpoint.tasks.stop()

    async def test_requests_that_waited_for_one_thing_are_answered_by_one_write(self):
        gate = asyncio.get_running_loop().create_future()

        def wait(_connection: Connection, _command: Command) -> asyncio.Future[Command]:
            future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            gate.add_done_callback(lambda _: future.set_result(response(0)))
            return future

        connection, transport, _ = connect({FUTURE: Route(FUTURE, wait)})
        feed(connection, b"".join(frame(FUTURE, b"", number) for number in range(20)))
        assert transport.writes == 0

        gate.set_result(None)
        await until(lambda: transport.answers)

        assert transport.writes == 1
        assert [answer.opaque for answer in transport.answers] == list(range(20))

    async def test_a_coroutine_for_a_oneway_request_is_not_answered(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(LATER, b"mine", 1, oneway=True))
        handlers.gate.set()
        await until(lambda: handlers.seen)
        await endpoint.tasks.stop()

        assert transport.answers == []

    async def test_an_answer_after_the_connection_was_lost_goes_nowhere(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        feed(connection, frame(LATER))
        connection.connection_lost(None)
        handlers.gate.set()
        await until(lambda: handlers.seen)
        await endpoint.tasks.stop()

        assert transport.writes == 0
        assert not connection.is_open


class TestManyOpenRequests:
    async def test_a_few_are_at_work_and_the_others_wait_for_their_turn(self, handlers: Handlers):
        at_work: list[int] = []
        most = 0

        async def work(_connection: Connection, command: Command) -> Command:
            nonlocal most
            at_work.append(command.opaque)
            most = max(most, len(at_work))
            await handlers.gate.wait()
            at_work.remove(command.opaque)
            return response(0)

        connection, transport, endpoint = connect({LATER: Route(LATER, work)})
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(50)))
        await until(lambda: at_work)
        for _ in range(5):
            await asyncio.sleep(0)
        assert 1 < len(at_work) < 10
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 50)

        assert most < 10
        await endpoint.stop("done")

    async def test_none_begins_while_the_peer_is_behind(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        handlers.gate.set()
        connection.pause_writing()
        connection.answer_later(request(LATER), handlers.routes()[LATER].process(connection, request(LATER)))  # type: ignore[arg-type]
        for _ in range(5):
            await asyncio.sleep(0)
        assert (connection.is_behind, handlers.seen) == (True, [])

        connection.resume_writing()
        await until(lambda: transport.answers)

        assert (connection.is_behind, len(handlers.seen)) == (False, 1)
        await endpoint.stop("done")

    @pytest.mark.parametrize("code", [LATER, FUTURE])
    async def test_with_too_many_it_is_not_heard_until_half_are_answered(self, handlers: Handlers, code: int):
        futures: list[asyncio.Future[Command]] = []

        def wait(_connection: Connection, _command: Command) -> asyncio.Future[Command]:
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        async def work(_connection: Connection, _command: Command) -> Command:
            return await wait(_connection, _command)

        connection, transport, endpoint = connect({LATER: Route(LATER, work), FUTURE: Route(FUTURE, wait)})
        feed(connection, b"".join(frame(code, b"", number) for number in range(3000)))
        assert transport.stopped
        for number in range(3000):
            assert connection._open_requests <= 1024
            async with asyncio.timeout(10):
                while len(futures) <= number:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
            futures[number].set_result(response(0))
        await until(lambda: len(transport.answers) == 3000)

        assert transport.reading
        assert {answer.opaque for answer in transport.answers} == set(range(3000))
        await endpoint.stop("done")

    async def test_those_that_wait_meanwhile_know_for_how_long(self):
        clock = [100.0]
        futures: list[asyncio.Future[Command]] = []
        waited: list[float] = []

        def wait(connection: Connection, _command: Command) -> asyncio.Future[Command]:
            waited.append(connection.waited_s)
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        connection, _, endpoint = connect({FUTURE: Route(FUTURE, wait)})
        connection._loop = cast("asyncio.AbstractEventLoop", SimpleNamespace(time=lambda: clock[0]))
        feed(connection, b"".join(frame(FUTURE, b"", number) for number in range(2000)))
        assert (len(futures), set(waited)) == (1024, {0.0})
        clock[0] += 0.5
        for future in futures[:512]:
            future.set_result(response(0))
        await until(lambda: len(futures) == 1536)
        clock[0] += 0.25
        for future in futures[512:1024]:
            future.set_result(response(0))
        await until(lambda: len(futures) == 2000)
        feed(connection, frame(FUTURE))

        assert waited[1024:1536] == [0.5] * 512
        assert waited[1536:2000] == [0.75] * 464
        assert waited[2000:] == [0.0]
        await endpoint.stop("done")

    async def test_those_whose_turn_never_came_end_with_the_endpoint(self, handlers: Handlers):
        connection, _, endpoint = connect(handlers.routes())
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(50)))
        await asyncio.sleep(0)

        await endpoint.stop("done")

        assert handlers.seen == []
        assert connection._open_requests == 0


class TestAnswersThatCannotBeEncoded:
    BAD: tuple[Callable[[], Any], ...] = (
        lambda: response(0, None, 7),
        lambda: response(0, "remark \ud800"),
        lambda: response(0, None, None, cast("bytes", "no bytes")),
        lambda: 7,
    )

    @pytest.mark.parametrize("make", BAD, ids=["header", "remark", "body", "type"])
    async def test_are_told_and_the_connection_goes_on(self, handlers: Handlers, make: Callable[[], Any]):
        async def later(_connection: Connection, _command: Command) -> Any:
            return make()

        routes = handlers.routes() | {60: Route(60, lambda *_: make()), 61: Route(61, later)}
        connection, transport, endpoint = connect(routes)

        feed(connection, frame(60, b"", 1) + frame(61, b"", 2) + frame(ECHO, b"", 3))
        await until(lambda: len(transport.answers) == 3)

        assert {answer.opaque: answer.code for answer in transport.answers} == {1: 1, 2: 1, 3: 0}
        assert all(answer.is_response for answer in transport.answers)
        assert not transport.closed
        await endpoint.stop("done")


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


class TestSlowPeer:
    async def test_it_is_not_heard_until_it_takes_its_answers(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        transport.blocked = True
        stream = b"".join(frame(ECHO, b"%d" % number, number) for number in range(500))

        feed(connection, stream)

        assert transport.stopped
        assert 0 < len(handlers.seen) < 100
        # A read that was under way still comes in.
        feed(connection, frame(ECHO, b"late", 500)[:9])
        feed(connection, frame(ECHO, b"late", 500)[9:])
        seen = len(handlers.seen)
        assert seen < 100

        transport.drained()

        assert transport.reading
        assert [body for _, body in handlers.seen] == [b"%d" % number for number in range(500)] + [b"late"]
        assert [answer.opaque for answer in transport.answers] == list(range(501))

    async def test_what_waits_for_the_peer_itself_is_not_held_against_it(self):
        waited: list[float] = []

        def answer(connection: Connection, _command: Command) -> Command:
            waited.append(connection.waited_s)
            return response(0)

        connection, transport, _ = connect({ECHO: Route(ECHO, answer)})
        transport.blocked = True
        feed(connection, b"".join(frame(ECHO, b"", number) for number in range(500)))
        seen = len(waited)
        transport.drained()

        assert (seen < 100, waited) == (True, [0.0] * 500)

    async def test_it_may_stop_several_times(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        stream = b"".join(frame(ECHO, b"%d" % number, number) for number in range(500)) + frame(ECHO, b"end", 500)[:20]
        transport.blocked = True
        feed(connection, stream)
        rounds = 0
        while not transport.reading:
            transport.waiting = 0
            connection.resume_writing()
            rounds += 1
            assert rounds < 100
        feed(connection, frame(ECHO, b"end", 500)[20:])

        assert rounds > 3
        assert len(handlers.seen) == 501 - (0 if handlers.seen[-1][1] == b"end" else 1)
        assert [body for _, body in handlers.seen[:500]] == [b"%d" % number for number in range(500)]

    async def test_a_client_goes_on_hearing(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), throttles=False)
        transport.blocked = True

        feed(connection, frame(ECHO, b"x" * 50) * 20)

        assert transport.reading
        assert len(handlers.seen) == 20

    async def test_a_connection_lost_while_stopped_forgets_what_waits(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 50) * 500)
        seen = len(handlers.seen)
        connection.connection_lost(None)

        connection.resume_writing()

        assert len(handlers.seen) == seen
        assert endpoint.connections == set()

    @pytest.mark.parametrize("piece", [b"x" * 100_000, [b"x" * 50_000, memoryview(b"y" * 50_000)]])
    async def test_large_answers_to_one_read_are_handed_over_by_their_bytes(self, piece: Any):
        def answer(_connection: Connection, command: Command) -> Any:
            if isinstance(piece, list):
                return piece
            return response(0, None, None, piece)

        connection, transport, endpoint = connect({ECHO: Route(ECHO, answer)})
        batches: list[int] = []
        endpoint.on_batch_end = lambda: batches.append(len(transport.written))
        transport.blocked = True

        feed(connection, frame(ECHO) * 50)

        assert transport.stopped
        assert 256 * 1024 < len(transport.written) < 400_000
        assert batches[0] == 0, "what is answered is readable before"
        transport.drained()
        assert len(transport.written) >= 50 * 100_000


class TestIdle:
    LIMITS = ConnectionLimits(max_idle_s=10)

    async def test_one_that_sends_nothing_is_closed(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        started = connection.last_read
        connection.close_if_idle(started + 9.9)
        assert not transport.closed

        connection.close_if_idle(started + 10.1)

        assert (transport.closed, transport.aborted) == (True, False)

    async def test_one_that_takes_nothing_is_dropped_also_when_it_sends(self, handlers: Handlers, caplog):
        caplog.set_level("INFO")
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        transport.blocked = True
        feed(connection, frame(ECHO))
        started = connection.last_read
        for after in range(10):
            connection.last_read = started + after
            connection.close_if_idle(started + after)
        assert not transport.closed

        connection.close_if_idle(started + 10.1)

        assert transport.aborted
        assert f"took none of the {transport.waiting} bytes" in caplog.text
        assert "(serverChannelMaxIdleTimeSeconds)" in caplog.text

    async def test_one_that_takes_a_little_at_a_time_stays(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes(), limits=self.LIMITS)
        now = connection.last_read
        transport.blocked = True
        feed(connection, frame(ECHO, b"x" * 1000))
        assert connection.is_behind
        for _ in range(100):
            transport.waiting -= 1
            now += 9
            connection.close_if_idle(now)
        assert not transport.closed

        transport.drained()
        connection._heard_at = now
        connection.close_if_idle(now + 9)
        assert not transport.closed
        connection.close_if_idle(now + 11)
        assert (transport.closed, transport.aborted) == (True, False)

    async def test_one_that_waits_for_its_answers_stays(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes(), limits=self.LIMITS)
        feed(connection, b"".join(frame(LATER, b"", number) for number in range(1100)))
        assert transport.stopped

        connection.close_if_idle(connection.last_read + 100)

        assert not transport.closed
        handlers.gate.set()
        await until(lambda: len(transport.answers) == 1100)
        await endpoint.stop("done")


class TestRequests:
    async def test_an_answer_finds_its_request_even_when_its_code_is_served_here(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())
        tasks = [asyncio.create_task(connection.invoke(request(39), 10)) for _ in range(2)]
        await until(lambda: len(transport.answers) == 2)
        first, second = (sent.opaque for sent in transport.answers)
        assert first != second
        for code, opaque in ((TYPED, second), (ECHO, first)):
            answer = response(code, None, None, b"body %d" % opaque)
            answer.opaque = opaque
            feed(connection, encode_frame(answer))

        answers = await asyncio.gather(*tasks)

        assert [(answer.code, answer.body) for answer in answers] == [
            (ECHO, b"body %d" % first),
            (TYPED, b"body %d" % second),
        ]
        assert handlers.seen == []

    async def test_no_answer_in_time(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        with pytest.raises(RemotingTimeoutError, match=r"no answer from 192.0.2.7:4000 to request code 39 within"):
            await connection.invoke(request(39), 0.01)

        late = response(0)
        late.opaque = transport.answers[0].opaque
        feed(connection, encode_frame(late))
        assert connection._pending == {}

    async def test_a_lost_connection_ends_all_that_wait(self, handlers: Handlers):
        lost: list[object] = []
        connection, transport, endpoint = connect(handlers.routes(), on_close=lost.append)
        tasks = [asyncio.create_task(connection.invoke(request(39), 10)) for _ in range(3)]
        await until(lambda: len(transport.answers) == 3)

        connection.connection_lost(ConnectionResetError())

        for task in tasks:
            with pytest.raises(RemotingSendError, match=r"the connection to 192.0.2.7:4000 was lost"):
                await task
        with pytest.raises(RemotingSendError, match="is closed"):
            await connection.invoke(request(39), 10)
        assert lost == [connection]
        assert endpoint.connections == set()

    async def test_oneway_requests_say_so(self, handlers: Handlers):
        connection, transport, _ = connect(handlers.routes())

        connection.send_oneway(request(40, {"a": "b"}))

        (sent,) = transport.answers
        assert (sent.code, sent.is_oneway, sent.is_response, sent.header) == (40, True, False, {"a": "b"})

    async def test_opaques_stay_within_an_int(self, handlers: Handlers):
        connection, transport, endpoint = connect(handlers.routes())
        endpoint.opaque = iter([2**31 - 1, 2**31, 2**31 + 1])  # type: ignore[assignment]

        for _ in range(3):
            connection.send_oneway(request(40))

        assert all(0 <= sent.opaque < 2**31 for sent in transport.answers)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("192.0.2.7", 10911), "c000020700002a9f"),
        (("::ffff:192.0.2.7", 10911, 0, 0), "c000020700002a9f"),
        (("2001:db8::1", 10911, 0, 0), "20010db800000000000000000000000100002a9f"),
        (("fe80::1%lo", 1, 0, 1), "fe80000000000000000000000000000100000001"),
    ],
)
def test_a_peer_as_records_hold_it(address, expected: str):
    assert host_bytes(address).hex() == expected
