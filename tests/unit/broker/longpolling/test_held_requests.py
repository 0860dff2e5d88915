import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from rocketbroker.broker.longpolling.held_requests import Deadlines, HeldRequest, HeldRequests
from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.codec.remoting.remoting_command import Command, request, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.waiting import turns


async def test_items_are_due_in_order_and_once():
    calls: list[set[str]] = []
    done = asyncio.Event()

    def due(items: Iterable[str]) -> None:
        calls.append(set(items))
        if "last" in calls[-1]:
            done.set()

    deadlines: Deadlines[str] = Deadlines(due)
    begin = asyncio.get_running_loop().time()
    deadlines.add("last", 0.1)
    deadlines.add("first", 0.02)
    gone = deadlines.add("gone", 0.05)
    deadlines.discard("gone", gone)
    deadlines.discard("gone", gone)
    async with asyncio.timeout(60):
        await done.wait()

    assert calls == [{"first"}, {"last"}]
    assert asyncio.get_running_loop().time() - begin >= 0.1
    assert len(deadlines) == 0
    assert deadlines._timer is None


async def test_many_items_of_one_time_cost_one_call_and_one_timer():
    calls: list[int] = []
    deadlines: Deadlines[int] = Deadlines(lambda items: calls.append(len(list(items))))
    ticks = {deadlines.add(item, 3600) for item in range(1000)}
    assert len(ticks) <= 2 or len(deadlines._ticks) == len(ticks)
    deadlines._ticks = [tick - 72_000 * 2 for tick in deadlines._ticks]
    deadlines._items = {tick - 72_000 * 2: items for tick, items in deadlines._items.items()}
    deadlines._run()
    assert sum(calls) == 1000
    assert len(calls) == len(ticks)


async def test_times_of_items_that_are_gone_take_no_memory():
    deadlines: Deadlines[int] = Deadlines(lambda _items: None)
    for second in range(20_000):
        deadlines.discard(second, deadlines.add(second, second))
    assert len(deadlines._items) == 0
    assert len(deadlines._ticks) <= 1_025
    deadlines.stop()


async def test_a_time_beyond_all_bounds_is_kept():
    deadlines: Deadlines[int] = Deadlines(lambda _items: None)
    deadlines.add(1, 2**63 / 1000)
    await asyncio.sleep(0)
    assert len(deadlines) == 1
    deadlines.stop()
    assert len(deadlines) == 0


async def test_changed_policies_end_requests_without_the_right_and_leave_the_others_waiting():
    lost: set[int] = set()
    passed_on: list[HeldRequest] = []
    answers: list[tuple[int, int]] = []

    def grant(number: int) -> None:
        if number in lost:
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, f"{number} may not")

    def run(_connection: Connection, command: Command, _request: HeldRequest) -> Command:
        return response(remark=f"{command.opaque} ran")

    held: HeldRequests[HeldRequest] = HeldRequests(lambda _: None, passed_on.append)
    connection = FakeConnection()
    requests = []
    for number in range(3_000):
        command = request(11)
        command.opaque = number
        # What a peer sent as a grant is no callable, and does not count.
        command.grant = partial(grant, number) if number else {"_grant": 1}
        each = HeldRequest(connection, command, "T", 0, None, None, run, filtered_queues=0)
        held.hold(each, 60)
        requests.append(each)
    original = connection.answer

    def answer(command: Command, make: Callable[[], Answer]) -> None:
        try:
            original(command, make)
        except BrokerResponseError as error:
            answers.append((command.opaque, error.code))

    connection.answer = answer  # type: ignore[method-assign]
    held.check_grants()
    await turns(10)
    assert (connection.answers, answers, held.weight) == ([], [], 3_000)

    lost |= {7, 2_999}
    held.check_grants()
    held.check_grants()
    await turns(10)
    assert sorted(answers) == [(7, ResponseCode.NO_PERMISSION), (2_999, ResponseCode.NO_PERMISSION)]
    assert {each.command.opaque for each in passed_on} == lost, "another pop can have what they would have got"
    assert held.weight == 2_998

    lost |= {8}
    held.wake(requests[8:10])
    await turns(3)
    assert answers[2:] == [(8, ResponseCode.NO_PERMISSION)], "a message came before the check"
    assert [answer.remark for _, answer in connection.answers] == ["9 ran"]
    held.stop()
