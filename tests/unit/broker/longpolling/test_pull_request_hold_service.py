"""The periodic check of held pulls, and what wakes them."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.broker.longpolling import pull_request_hold_service
from rocketbroker.broker.longpolling.pull_request import PullRequest
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common import lifecycle
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.held_pulls import held_count
from tests.support.waiting import until


async def test_a_pull_that_wants_other_tags_ends_with_the_check() -> None:
    ends = {0: 10, 1: 10}
    resumed: list[PullRequest] = []
    config = BrokerConfig.model_validate({"longPollingEnable": "false", "shortPollingTimeMills": "1"})
    service = PullRequestHoldService(config)
    service.bind(resumed.append, lambda _topic, queue_id: ends[queue_id])
    pulls = [PullRequest(FakeConnection(), None, "Topic", queue_id, 10, frozenset({7})) for queue_id in ends]
    for pull in pulls:
        service.suspend(pull, 60_000)
    await service.start()
    ends[1] = 11
    service.arriving("Topic", 1, 11, 8)
    assert resumed == [], "a message with another tag wakes nobody at its arrival"
    async with asyncio.timeout(5):
        while not resumed:  # noqa: ASYNC110 - the service tells nobody else
            await asyncio.sleep(0.002)
    assert resumed == [pulls[1]]
    assert held_count(service) == 1, "where nothing came, the pull stays held"
    await service.stop()


async def test_an_error_that_nobody_foresaw_does_not_end_the_check(caplog, monkeypatch) -> None:
    monkeypatch.setattr(lifecycle, "RESTART_S", 0.0)
    asked: list[int] = []
    resumed: list[PullRequest] = []

    def max_offset(_topic: str, queue_id: int) -> int:
        asked.append(queue_id)
        if len(asked) == 1:
            raise OSError("the first look fails")
        return 11

    config = BrokerConfig.model_validate({"longPollingEnable": "false", "shortPollingTimeMills": "1"})
    service = PullRequestHoldService(config)
    service.bind(resumed.append, max_offset)
    service.suspend(PullRequest(FakeConnection(), None, "Topic", 0, 10, None), 60_000)
    await service.start()
    await until(lambda: resumed)
    await service.stop()
    assert "the held pulls of Topic, queue 0, cannot be checked" in caplog.text


async def test_a_pull_that_cannot_be_answered_keeps_no_other_from_it(caplog) -> None:
    resumed: list[PullRequest] = []

    def resume(request: PullRequest) -> None:
        if not resumed and request is first:
            raise ValueError("no answer")
        resumed.append(request)

    service = PullRequestHoldService(BrokerConfig())
    service.bind(resume, lambda _topic, _queue_id: 0)
    pulls = [PullRequest(FakeConnection(), None, "Topic", 0, 10, None) for _ in range(2)]
    service.suspend(pulls[0], 60_000)
    service.suspend(pulls[1], 60_000)
    first = next(iter(service._held["Topic", 0]))  # they are woken in this order
    service.arriving("Topic", 0, 11, 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert resumed == [pull for pull in pulls if pull is not first]
    assert "could not be answered" in caplog.text
    await service.stop()


async def test_a_reset_wakes_the_pulls_of_its_group_alone() -> None:
    resumed: list[PullRequest] = []
    service = PullRequestHoldService(BrokerConfig())
    service.bind(resumed.append, lambda _topic, _queue_id: 0)
    pulls = {
        (group, queue_id): PullRequest(
            FakeConnection(),
            SimpleNamespace(header=SimpleNamespace(consumer_group=group)),
            "Topic",
            queue_id,
            10,
            frozenset({7}),
        )
        for group in ("g", "h")
        for queue_id in (0, 1)
    }
    for pull in pulls.values():
        service.suspend(pull, 60_000)
    service.wake_group("g", "Topic", 1)
    service.wake_group("g", "Other", 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert resumed == [pulls["g", 1]]
    assert held_count(service) == 3
    await service.stop()


def held_service(
    ends: dict[int, int] | None = None, settings: dict[str, int] | None = None
) -> tuple[PullRequestHoldService, list[PullRequest]]:
    """A service with what it has resumed; queues end at 10 unless ``ends`` tells otherwise."""
    resumed: list[PullRequest] = []
    service = PullRequestHoldService(BrokerConfig.model_validate(settings or {}))
    service.bind(resumed.append, lambda _topic, queue_id: (ends or {}).get(queue_id, 10))
    return service, resumed


def pull(connection: FakeConnection, queue_id: int = 0, *codes: int, **fields: Any) -> PullRequest:
    return PullRequest(connection, None, "Topic", queue_id, 10, frozenset(codes) or None, **fields)


@pytest.mark.parametrize(
    ("name", "other_is_refused"), [("max_held_pulls_per_connection", False), ("max_held_pulls", True)]
)
async def test_so_many_pulls_are_held_and_no_more(name: str, other_is_refused: bool) -> None:
    service, _ = held_service(settings={name: 2})
    greedy, other = FakeConnection(), FakeConnection()
    for queue_id in range(2):
        service.suspend(pull(greedy, queue_id), 60_000)

    for connection in [greedy, other] if other_is_refused else [greedy]:
        with pytest.raises(BrokerResponseError, match=r"maxHeldPulls\w*: 2 pulls are held and the limit is 2") as error:
            service.suspend(pull(connection, 2), 60_000)
        assert error.value.code == ResponseCode.SYSTEM_BUSY
    if not other_is_refused:
        service.suspend(pull(other, 2), 60_000)
    service.on_close(other)

    assert held_count(service) == 2
    assert list(service._by_connection) == [greedy]
    service.on_close(greedy)
    assert (held_count(service), service.waiting, service._by_connection, service._weight) == (0, False, {}, 0)
    await service.stop()


@pytest.mark.parametrize(
    ("fields", "weight"),
    [
        ({}, 1),
        ({"tag_codes": frozenset(range(3))}, 1),
        ({"tag_codes": frozenset(range(8))}, 3),
        ({"has_match": bool}, 1),
        ({"has_match": bool, "carried": (None, None)}, 33),
    ],
)
async def test_a_pull_counts_by_what_is_kept_for_it(fields: dict[str, Any], weight: int) -> None:
    values: dict[str, Any] = {"tag_codes": None, **fields}
    request = PullRequest(FakeConnection(), None, "Topic", 0, 10, **values)
    service, _ = held_service(settings={"max_held_pulls": weight})
    service.suspend(request, 60_000)
    with pytest.raises(BrokerResponseError, match="maxHeldPulls"):
        service.suspend(pull(FakeConnection()), 60_000)
    await service.stop()


class CountedCodes(frozenset[int]):
    """Tags codes that count how often they are looked at."""

    looked = 0

    def __contains__(self, code: object) -> bool:
        type(self).looked += 1
        return super().__contains__(code)


async def test_a_message_looks_at_few_of_the_pulls_that_do_not_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedCodes, "looked", 0)
    service, resumed = held_service()
    connection = FakeConnection()
    for _ in range(2_000):
        service.suspend(PullRequest(connection, None, "Topic", 0, 10, CountedCodes({7})), 60_000)
    service.suspend(wanting := pull(connection, 0, 8, 9), 60_000)

    for message in range(100):
        service.arriving("Topic", 0, 11 + message, 1)
    assert CountedCodes.looked <= 4 * 100
    service.arriving("Topic", 0, 111, 9)
    await turns(2)

    assert resumed == [wanting]
    assert held_count(service) == 2_000
    service.arriving("Topic", 0, 112, 7)
    await turns(100)
    assert (len(resumed), held_count(service)) == (2_001, 0)
    await service.stop()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_turn_of_the_loop_runs_few_of_the_pulls_that_were_woken() -> None:
    service, resumed = held_service()
    for _ in range(1_000):
        service.suspend(pull(FakeConnection()), 60_000)
    service.arriving("Topic", 0, 11, 0)
    service.arriving("Topic", 0, 12, 0)

    before, most = 0, 0
    for _ in range(30):
        await turns(1)
        most, before = max(most, len(resumed) - before), len(resumed)

    assert (most, len(set(resumed)), len(resumed), held_count(service)) == (64, 1_000, 1_000, 0)
    await service.stop()


async def test_a_turn_of_the_loop_asks_few_filters() -> None:
    asked: list[int] = []
    service, resumed = held_service()

    def matches(number: int) -> bool:
        asked.append(number)
        return number == 50

    for number in range(100):
        service.suspend(pull(FakeConnection(), has_match=partial(matches, number)), 60_000)
    for offset in range(11, 20):
        service.arriving("Topic", 0, offset, 0)

    before, most = 0, 0
    for _ in range(20):
        await turns(1)
        most, before = max(most, len(asked) - before), len(asked)

    assert (most, sorted(asked), len(resumed)) == (16, list(range(100)), 1)
    await service.stop()


async def test_pulls_whose_time_is_over_together_are_run_a_few_in_a_turn() -> None:
    service, resumed = held_service()
    for _ in range(1_000):
        service.suspend(pull(FakeConnection()), 1)
    most = 0
    async with asyncio.timeout(10):
        while held_count(service):
            before = len(resumed)
            await turns(1)
            most = max(most, len(resumed) - before)
    assert (most, len(resumed), len(service._deadlines)) == (64, 1_000, 0)
    await service.stop()


async def test_the_check_goes_through_many_queues_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_request_hold_service, "_MOST_CHECKED", 20)
    service, resumed = held_service()
    asked: list[int] = []

    def end_of(_topic: str, queue_id: int) -> int:
        asked.append(queue_id)
        return 11 if queue_id == 3 else 10

    service.bind(resumed.append, end_of)
    for queue_id in range(100):
        service.suspend(pull(FakeConnection(), queue_id, 7), 60_000)

    check = asyncio.ensure_future(service._check_held())
    await turns(1)
    assert len(asked) == 10
    await check
    await turns(2)

    assert (len(asked), [each.queue_id for each in resumed]) == (100, [3])
    await service.stop()


async def test_the_check_drops_queues_without_pulls() -> None:
    service, resumed = held_service()
    service.suspend(pull(FakeConnection(), 0), 60_000)
    service.suspend(pull(FakeConnection(), 1), 60_000)
    service.arriving("Topic", 0, 11, 0)
    await turns(2)
    assert (len(resumed), service.waiting) == (1, True)
    await service._check_held()
    assert list(service._held) == [("Topic", 1)]
    service.arriving("Topic", 1, 11, 0)
    await turns(2)
    assert (len(resumed), service.waiting) == (2, False)
    await service.stop()


async def test_a_queue_that_cannot_be_checked_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    service, resumed = held_service(ends={0: 11, 2: 11})

    def end_of(_topic: str, queue_id: int) -> int:
        if queue_id == 0:
            raise KeyError("Topic")
        return 11

    service.bind(resumed.append, end_of)
    for queue_id in range(3):
        service.suspend(pull(FakeConnection(), queue_id, 7), 60_000)
    await service._check_held()
    await turns(2)

    assert sorted(each.queue_id for each in resumed) == [1, 2]
    assert "the held pulls of Topic, queue 0, cannot be checked" in caplog.text
    await service.stop()
