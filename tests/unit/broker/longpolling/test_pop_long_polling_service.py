"""Wakes of held pops, by messages and by the broker, and the limits."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService, PopRequest
from rocketbroker.codec.remoting.handler import HELD, Held
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.waiting import turns, until


@pytest.mark.parametrize(("queues", "weight"), [(1, 33), (8, 35), (16_384, 4_129)])
def test_a_pop_counts_by_the_queues_that_it_filters(queues: int, weight: int) -> None:
    def held(has_match: Callable[[], bool] | None) -> PopRequest:
        run: Callable[..., Held] = Polling().resume
        return PopRequest(
            FakeConnection(), request(200050), "T", "G", -1, None, has_match, filtered_queues=queues, run=run
        )

    assert (held(bool).weight, held(None).weight) == (weight, 1)


class Polling:
    """A service, and the pops that it ran again, in their order."""

    def __init__(self, **settings: int) -> None:
        self.service = PopLongPollingService(BrokerConfig.model_validate(settings))
        self.resumed: list[PopRequest] = []

    def resume(self, _connection: Any, _command: Any, pop: PopRequest) -> Held:
        self.resumed.append(pop)
        return HELD

    def hold(
        self,
        queue_id: int = -1,
        *codes: int,
        group: str = "g",
        topic: str = "Topic",
        connection: FakeConnection | None = None,
        has_match: Callable[[], bool | None] | None = None,
        timeout_ms: int = 60_000,
    ) -> PopRequest:
        """Hold a pop for these tags codes, for all messages without codes."""
        pop = PopRequest(
            connection or FakeConnection(),
            request(200050),
            topic,
            group,
            queue_id,
            frozenset(codes) or None,
            has_match,
            run=self.resume,
        )
        self.service.suspend(pop, timeout_ms)
        return pop

    async def woken(self) -> list[PopRequest]:
        """Return the pops that ran since the last call."""
        await turns(3)
        woken, self.resumed = self.resumed, []
        return woken

    def assert_empty(self) -> None:
        service = self.service
        assert (service.waiting, service._topics, service._retries, service._requests.weight) == (False, {}, {}, 0)
        assert len(service._requests._deadlines) == 0


@pytest.fixture
async def polling() -> AsyncIterator[Polling]:
    polling = Polling()
    yield polling
    await polling.service.stop()
    polling.assert_empty()


async def test_a_message_wakes_the_oldest_pop_of_each_group_for_its_queue_and_for_all(polling: Polling) -> None:
    pops = {
        (group, queue_id): [polling.hold(queue_id, group=group) for _ in range(2)]
        for group in ("g", "h")
        for queue_id in (-1, 0, 1)
    }
    polling.service.arriving("Other", 0, 1, 0)
    assert await polling.woken() == []

    polling.service.arriving("Topic", 1, 1, 0)
    assert await polling.woken() == [pops[key][0] for key in [("g", -1), ("g", 1), ("h", -1), ("h", 1)]]
    polling.service.arriving("Topic", 0, 1, 0)
    assert await polling.woken() == [pops["g", -1][1], pops["g", 0][0], pops["h", -1][1], pops["h", 0][0]]
    assert polling.service.polling_num("Topic", "g", 0) == 1
    assert polling.service.polling_num("Topic", "g", 2) == 0


async def test_as_many_pops_are_woken_as_messages_arrive(polling: Polling) -> None:
    pops = [polling.hold() for _ in range(3)]
    for offset in range(2):
        polling.service.arriving("Topic", 0, offset + 1, 0)
    assert await polling.woken() == pops[:2]


async def test_a_message_wakes_the_oldest_pop_that_wants_its_tag(polling: Polling) -> None:
    seven, both, everything = polling.hold(-1, 7), polling.hold(-1, 7, 8), polling.hold()
    polling.service.arriving("Topic", 0, 1, 8)
    assert await polling.woken() == [both]
    polling.service.arriving("Topic", 0, 2, 9)
    assert await polling.woken() == [everything]
    polling.service.arriving("Topic", 0, 3, 8)
    assert await polling.woken() == []
    polling.service.arriving("Topic", 0, 4, 7)
    assert await polling.woken() == [seven]


async def test_pops_that_filter_by_properties_look_at_the_messages_themselves(polling: Polling) -> None:
    answers: list[bool | None] = [False, None, True]
    pop = polling.hold(-1, has_match=lambda: answers.pop(0))
    other = polling.hold(1, has_match=lambda: True)
    polling.service.arriving("Topic", 0, 1, 0)
    assert await polling.woken() == []
    assert answers == [None, True]
    polling.service.arriving("Topic", 0, 2, 0)
    assert await polling.woken() == [pop], "asked again after other work"
    polling.service.arriving("Topic", 1, 1, 0)
    assert await polling.woken() == [other]


@pytest.mark.parametrize("retry_topic", ["%RETRY%g_Topic", "%RETRY%g+Topic"])
async def test_a_message_to_be_retried_wakes_a_pop_of_its_group(polling: Polling, retry_topic: str) -> None:
    by_queue, by_filter = polling.hold(3), polling.hold(-1, has_match=lambda: False)
    first, second, other = polling.hold(-1, 7), polling.hold(-1, 7), polling.hold(group="h")
    woken = []
    for offset in range(4):
        polling.service.arriving(retry_topic, 0, offset + 1, 9)
        woken += await polling.woken()
    assert woken == [first, second, by_filter, by_queue]
    polling.service.arriving("%RETRY%h_Topic2", 0, 1, 0)
    assert await polling.woken() == []
    assert other.held


async def test_a_retry_topic_that_may_be_of_two_groups_wakes_both(polling: Polling) -> None:
    pops = [polling.hold(group="a_b", topic="c"), polling.hold(group="a", topic="b_c")]
    polling.service.arriving("%RETRY%a_b_c", 0, 1, 0)
    assert await polling.woken() == pops


async def test_a_pop_of_a_retry_topic_itself_is_woken(polling: Polling) -> None:
    pop = polling.hold(topic="%RETRY%g")
    polling.service.arriving("%RETRY%g", 0, 1, 0)
    assert await polling.woken() == [pop]


async def test_wake_takes_a_pop_for_all_queues_then_one_for_the_queue(polling: Polling) -> None:
    by_queue, for_all, other = polling.hold(1, 7), polling.hold(-1, 7), polling.hold(2)
    for _ in range(3):
        polling.service.wake("Topic", "g", 1)
    polling.service.wake("Topic", "h", 1)
    polling.service.wake("Other", "g", 1)
    assert await polling.woken() == [for_all, by_queue]
    assert other.held


async def test_a_woken_pop_can_be_held_again(polling: Polling) -> None:
    pop = polling.hold()
    for _ in range(3):
        polling.service.arriving("Topic", 0, 1, 0)
        assert await polling.woken() == [pop]
        assert not polling.service.waiting
        polling.service.suspend(pop, 60_000)
    assert (polling.service.waiting, polling.service.polling_num("Topic", "g", -1)) == (True, 1)


async def test_a_pop_runs_again_when_its_time_is_over(polling: Polling) -> None:
    polling.hold()
    pops = {polling.hold(timeout_ms=timeout_ms) for timeout_ms in (1, 0, -5)}
    await until(lambda: len(polling.resumed) == len(pops))
    assert set(await polling.woken()) == pops
    assert polling.service.polling_num("Topic", "g", -1) == 1


async def test_a_pop_is_held_no_longer_than_the_broker_says() -> None:
    polling = Polling(maxSuspendTimeoutMillis=1_000)
    longest, same = polling.hold(timeout_ms=2**63), polling.hold(timeout_ms=1_000)
    assert 0 <= same.deadline - longest.deadline <= 1, "in ticks of 50 ms"
    await polling.service.stop()


async def test_a_closed_connection_forgets_its_pops_and_passes_their_messages_on(polling: Polling) -> None:
    closing, late = FakeConnection(), FakeConnection()
    polling.hold(connection=closing)
    polling.hold(connection=closing)
    polling.hold(connection=late)
    filters = polling.hold(has_match=lambda: False)
    last = polling.hold()
    for offset in range(3):
        polling.service.arriving("Topic", 0, offset + 1, 0)
    closing.is_open = late.is_open = False
    polling.service.on_close(closing)
    polling.service.on_close(closing)
    assert set(await polling.woken()) == {last, filters}
    polling.service.on_close(late)
    assert polling.service._requests._by_connection.keys() == {last.connection, filters.connection}


async def test_pops_are_held_up_to_the_limit_of_their_queue() -> None:
    polling = Polling(popPollingSize=2)
    for queue_id in (-1, -1, 0, 0):
        polling.hold(queue_id)
    with pytest.raises(
        BrokerResponseError, match="popPollingSize: 2 pops of group g wait for topic Topic, queue -1"
    ) as error:
        polling.hold()
    assert error.value.code == ResponseCode.POLLING_FULL
    polling.hold(1)
    polling.hold(group="h")
    polling.service.arriving("Topic", 2, 1, 0)
    await turns(2)
    polling.hold()
    await polling.service.stop()
    polling.assert_empty()


async def test_pops_are_held_up_to_the_limit_of_all() -> None:
    polling = Polling(maxPopPollingSize=40)
    polling.hold(has_match=bool)
    for _ in range(3):
        polling.hold(connection=FakeConnection("192.0.2.1:1"))
    with pytest.raises(BrokerResponseError, match="maxPopPollingSize: 36 pops are held and the limit is 40") as error:
        polling.hold(-1, *range(4), connection=FakeConnection("192.0.2.1:2"))
    assert error.value.code == ResponseCode.POLLING_FULL
    polling.hold(connection=FakeConnection("192.0.2.2:1"))
    for _ in range(3):
        polling.hold()
    with pytest.raises(BrokerResponseError, match="maxPopPollingSize: 40 pops"):
        polling.hold()
    await polling.service.stop()
    polling.assert_empty()


async def test_answers_of_a_connection_are_written_together(polling: Polling) -> None:
    connection = FakeConnection()
    for queue_id in range(5):
        polling.hold(queue_id, connection=connection)
        polling.service.arriving("Topic", queue_id, 1, 0)
    await turns(1)
    assert (len(connection.answers), connection.writes) == (5, 1)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "arriving", "retry", "wake", "close"]),
        st.integers(-1, 1),
        st.sampled_from(["g", "h"]),
        st.sampled_from([(), (7,), (7, 8)]),
    ),
    max_size=30,
)


@given(EVENTS)
def test_each_message_wakes_one_pop_that_wants_it_and_nothing_is_left(
    events: list[tuple[str, int, str, tuple[int, ...]]],
) -> None:
    asyncio.run(_follow(events))


async def _follow(events: list[tuple[str, int, str, tuple[int, ...]]]) -> None:
    polling, held = Polling(), list[PopRequest]()
    for kind, queue_id, group, codes in events:
        #: Groups and queues of the pops that may be woken.
        allowed: list[list[tuple[str, int]]] = [[]]
        if kind == "hold":
            held.append(polling.hold(queue_id, *codes, group=group))
        elif kind == "close" and held:
            pop = held.pop(queue_id % len(held))
            polling.service.on_close(pop.connection)
        elif kind == "arriving":
            code = codes[-1] if codes else 9
            wanting = [pop for pop in held if pop.tag_codes is None or code in pop.tag_codes]
            allowed = [sorted({(pop.group, pop.queue_id) for pop in wanting if pop.queue_id in {-1, max(queue_id, 0)}})]
            polling.service.arriving("Topic", max(queue_id, 0), 1, code)
        elif kind in {"wake", "retry"}:
            ids = {pop.queue_id for pop in held if pop.group == group}
            if kind == "wake":
                polling.service.wake("Topic", group, queue_id)
                ids &= {-1, queue_id}
            else:
                polling.service.arriving(f"%RETRY%{group}_Topic", 0, 1, 9)
            if ids:
                allowed = [[(group, id_)] for id_ in ({-1} if -1 in ids else ids)]
        woken = await polling.woken()
        assert sorted((pop.group, pop.queue_id) for pop in woken) in allowed
        held = [pop for pop in held if pop not in woken]
        assert polling.service.waiting == bool(held)
    for pop in held:
        polling.service.on_close(pop.connection)
    polling.assert_empty()
    await polling.service.stop()


async def test_pops_that_leave_out_messages_run_again_one_of_each_group_and_queue(polling: Polling):
    first, _second = polling.hold(-1, 1), polling.hold(-1, 1)
    of_queue = polling.hold(2, 1)
    by_properties = polling.hold(-1, group="other", has_match=lambda: False)
    polling.hold(-1, group="all")
    await polling.service.wake_filtered()

    assert {*polling.resumed} == {first, of_queue, by_properties}


async def test_all_pops_that_leave_out_messages_have_run_some_in_each_turn():
    polling = Polling()
    for number in range(100):
        polling.hold(-1, group=f"wants all {number}")
    filtered = {polling.hold(queue_id, 1, group=f"g{number}") for number in range(100) for queue_id in range(2)}
    for number in range(100):
        polling.service.wake("Topic", f"wants all {number}", -1)
    waking = asyncio.create_task(polling.service.wake_filtered())
    numbers = [0]
    while not waking.done():
        await asyncio.sleep(0)
        numbers.append(len(polling.resumed))

    assert filtered <= {*polling.resumed}
    assert max(later - earlier for earlier, later in pairwise(numbers)) <= 64
    await polling.service.stop()
