import asyncio
import errno

import pytest

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request, response
from rocketbroker.transport.endpoint import Endpoint
from rocketbroker.transport.peer_limits import ConnectionLimits
from rocketbroker.transport.request_run import HandledRun
from rocketbroker.transport.responder import Responder
from tests.support.transports import RUN as CODE
from tests.support.transports import Runs, attach, connect, feed, frames
from tests.support.waiting import until


async def test_requests_that_fit_the_template_are_handled_together():
    runs = Runs()
    connection, transport, endpoint = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(150, 10))

    assert (runs.sizes, runs.alone) == ([64, 64, 22], 9)
    assert [answer.opaque for answer in transport.answers] == list(range(1, 160))
    assert {key.code: latency.count for key, latency in endpoint.meter.figures.items()} == {CODE: 159}


async def test_few_requests_and_a_lone_one_are_handled_one_by_one():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())

    for first, count in ((1, 9), (10, 1), (11, 5), (16, 6)):
        feed(connection, frames(count, first))

    assert (runs.sizes, runs.alone) == ([6], 15)
    assert [answer.opaque for answer in transport.answers] == list(range(1, 22))


async def test_a_request_that_differs_ends_the_run_and_keeps_its_place():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(10, 10) + frames(1, 20, "Other") + frames(1, 21, oneway=True) + frames(10, 22))

    assert (runs.sizes, runs.alone) == ([10, 10], 11)
    assert [answer.opaque for answer in transport.answers] == [*range(1, 21), *range(22, 32)]


async def test_a_run_that_its_handler_leaves_is_handled_one_by_one():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())
    runs.leaves = True

    feed(connection, frames(100))

    assert (runs.sizes, runs.alone) == ([], 100)
    assert [answer.opaque for answer in transport.answers] == list(range(1, 101))


async def test_an_error_is_the_answer_to_each_request_of_the_run(monkeypatch, caplog):
    runs = Runs()
    connection, transport, endpoint = connect(runs.routes())
    monkeypatch.setattr(Runs, "process", lambda *_: 1 // 0)

    feed(connection, frames(9))
    feed(connection, frames(10, 10))

    assert runs.alone == 9
    assert [answer.opaque for answer in transport.answers] == list(range(1, 20))
    assert [answer.code for answer in transport.answers[9:]] == [1] * 10
    assert "ZeroDivisionError" in str(transport.answers[-1].remark)
    assert caplog.text.count("request code 31 failed") == 1
    assert {(key.response_code, latency.count) for key, latency in endpoint.meter.figures.items()} == {(0, 9), (1, 10)}


class TestWaitingRuns:
    """Runs whose answers wait for one thing."""

    @pytest.fixture
    def runs(self) -> Runs:
        runs = Runs()
        runs.waits = True
        return runs

    async def test_all_requests_of_waiting_runs_are_answered_by_one_write(self, runs: Runs):
        connection, transport, endpoint = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(64 + 16, 10))
        assert (runs.sizes, len(transport.answers)) == ([64, 16], 9)
        writes = transport.writes

        for future, answers in runs.waiting:
            future.set_result(answers)
        await until(lambda: len(transport.answers) == 89)

        assert transport.writes == writes + 1
        assert sorted(answer.opaque for answer in transport.answers) == list(range(1, 90))
        assert {key.code: latency.count for key, latency in endpoint.meter.figures.items()} == {CODE: 89}

    async def test_each_request_may_get_an_answer_of_its_own(self, runs: Runs):
        connection, transport, endpoint = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))

        runs.waiting[-1][0].set_result([response(10 + number) for number in range(7)])
        await until(lambda: len(transport.answers) > 9)

        assert [(one.opaque, one.code) for one in transport.answers[9:]] == [(10 + n, 10 + n) for n in range(7)]
        latencies = {key.response_code: latency for key, latency in endpoint.meter.figures.items()}
        assert [latencies[10 + number].count for number in range(7)] == [1] * 7
        assert max(latency.seconds for latency in latencies.values()) < 3600, "timed from their read event"

    async def test_an_error_is_the_answer_to_each_request(self, runs: Runs, caplog):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))

        runs.waiting[-1][0].set_exception(OSError(errno.EIO, "disk"))
        await until(lambda: len(transport.answers) > 9)

        assert [(one.opaque, one.code) for one in transport.answers[9:]] == [(10 + n, 1) for n in range(7)]
        assert caplog.text.count("request code 31 failed") == 1

    async def test_a_cancelled_run_gets_no_answer_and_is_no_longer_pending(self, runs: Runs):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))
        assert connection._responder._open_requests == 7

        for future, _ in runs.waiting:
            future.cancel()
        await until(lambda: not connection._responder._open_requests)

        assert len(transport.answers) == 9

    async def test_answers_for_a_closed_connection_go_nowhere(self, runs: Runs):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        feed(connection, frames(7, 10))
        writes = transport.writes

        connection.connection_lost(None)
        for future, answers in runs.waiting:
            future.set_result(answers)
        await until(lambda: not connection._responder._open_requests)
        await asyncio.sleep(0)

        assert transport.writes == writes

    async def test_a_connection_with_too_many_of_them_is_not_read_until_half_are_answered(self, runs: Runs):
        connection, transport, _ = connect(runs.routes())
        feed(connection, frames(9))
        for number in range(20):
            feed(connection, frames(64, 100 * number))
            if not transport.reading:
                break
        assert 1024 <= connection._responder._open_requests < 1024 + 64

        for future, answers in runs.waiting[: len(runs.waiting) // 2]:
            assert not transport.reading
            future.set_result(answers)
            await asyncio.sleep(0)
        await until(lambda: transport.reading)

        assert connection._responder._open_requests <= 512


async def test_a_new_template_is_learned_after_ever_more_requests():
    runs = Runs()
    connection, _, _ = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(7, 10))
    feed(connection, frames(7 + 5, 20, "Other"))
    feed(connection, frames(7, 40))
    assert runs.sizes == [7, 7]

    feed(connection, frames(1 + 5, 50, "Other"))
    feed(connection, frames(7, 60))
    feed(connection, frames(7, 70, "Other"))
    assert runs.sizes == [7, 7, 7]
    assert runs.topics == ["T", "T", "Other"]


async def test_the_request_that_does_not_fit_is_learned_not_those_before_it():
    runs = Runs()
    connection, _, _ = connect(runs.routes())
    feed(connection, frames(9))

    for _ in range(8):
        feed(connection, frames(3) + frames(1, 9, "Other") + frames(6))
    feed(connection, frames(7, 1, "Other"))

    assert runs.topics[-1] == "Other"


async def test_an_unknown_request_among_others_teaches_nothing():
    runs = Runs()
    connection, transport, _ = connect(runs.routes())
    unknown = encode_frame(request(999, GetMinOffsetRequestHeader("T", 1), b"1"))

    for number in range(9):
        feed(connection, unknown * 7)
        feed(connection, frames(1, 1 + number))
    feed(connection, frames(7, 10))

    assert (runs.sizes, runs.alone) == ([], 16)
    assert transport.answers[-1].opaque == 16


@pytest.mark.parametrize(("length", "sizes"), [(2048, [20]), (2049, [])])
async def test_no_template_is_learned_from_a_long_header(length: int, sizes: list[int]):
    runs = Runs()
    connection, transport, _ = connect(runs.routes())
    short = int.from_bytes(frames(1)[4:8], "big")
    topic = "T" * (length - short + 1)

    feed(connection, frames(9, 1, topic))
    feed(connection, frames(9, 1, topic) * 2 + frames(2, 8, topic))

    assert runs.sizes == sizes
    assert len(transport.answers) == 29


async def test_a_longer_header_than_is_accepted_does_not_join():
    runs = Runs()
    first = frames(1)
    longest = int.from_bytes(first[4:8], "big")
    connection, transport, _ = connect(runs.routes(), limits=ConnectionLimits(max_header_length=longest))

    feed(connection, frames(9))
    feed(connection, frames(1, 100) * 7)

    assert transport.closed
    assert runs.sizes == []
    assert [answer.opaque for answer in transport.answers[:9]] == list(range(1, 10))


async def test_a_changed_audience_takes_the_template_away():
    runs = Runs()
    route = runs.routes()[CODE]
    route.audience = Audience.ADMINISTRATION
    admitted = [Audience.ADMINISTRATION]
    endpoint = Endpoint("test", {CODE: route}, admit=lambda _peer, _own: admitted[0])
    connection, transport = attach(endpoint)
    endpoint.accept(connection, transport)
    feed(connection, frames(9))
    feed(connection, frames(10, 10))
    assert runs.sizes == [10]

    admitted[0] = Audience.CLIENT
    endpoint.readmit()
    feed(connection, frames(10, 30))

    assert runs.sizes == [10]
    assert [answer.code for answer in transport.answers[19:]] == [16] * 10


async def test_a_run_keeps_the_opaques_alone(monkeypatch: pytest.MonkeyPatch):
    runs = Runs()
    runs.waits = True
    taken: list[HandledRun] = []
    monkeypatch.setattr(Responder, "take_run", lambda _self, run: taken.append(run))
    connection, *_ = connect(runs.routes())

    feed(connection, frames(9))
    feed(connection, frames(8, 10))

    assert [each.opaques for each in taken] == [[b"%d" % opaque for opaque in range(10, 18)]]
    assert [command.opaque for command in taken[0].commands()] == list(range(10, 18))
