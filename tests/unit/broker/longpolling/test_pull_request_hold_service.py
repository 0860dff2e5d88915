"""The periodic check of held pulls, and what wakes them."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.broker.longpolling import pull_request_hold_service
from rocketbroker.broker.longpolling.pull_request import PullRequest
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.codec.remoting.handler import HELD, Held
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.waiting import turns

resumed: list[PullRequest] = []


@pytest.fixture(autouse=True)
def _nothing_resumed() -> None:
    resumed.clear()


def resume(_connection: Any, _command: Any, request: PullRequest) -> Held:
    """Run a held pull again: note that it was."""
    resumed.append(request)
    return HELD


async def test_a_pull_that_wants_other_tags_ends_with_the_check() -> None:
    config = BrokerConfig.model_validate({"longPollingEnable": "false", "shortPollingTimeMills": "1"})
    service = PullRequestHoldService(config)
    pulls = [pull(FakeConnection(), queue_id, 7) for queue_id in range(2)]
    for each in pulls:
        service.suspend(each, 10, 60_000)
    await service.start()
    service.arriving("Topic", 1, 11, 8)
    assert resumed == [], "a message with another tag wakes nobody at its arrival"
    async with asyncio.timeout(60):
        while not resumed:  # noqa: ASYNC110 - the service tells nobody else
            await asyncio.sleep(0.002)
    assert resumed == [pulls[1]]
    assert service.held == 1, "where nothing came, the pull stays held"
    await service.stop()


async def test_a_pull_that_did_not_get_what_its_queue_has_ends_with_the_check() -> None:
    service = held_service()
    service.suspend(pull(FakeConnection(), 0, 7), 11, 60_000)
    await service._check_held()
    await turns(2)
    assert (len(resumed), service.held) == (1, 0)
    await service.stop()


async def test_a_reset_wakes_the_pulls_of_its_group_alone() -> None:
    service = held_service()
    pulls = {
        (group, queue_id): PullRequest(
            FakeConnection(),
            SimpleNamespace(header=SimpleNamespace(consumer_group=group), grant=None),
            "Topic",
            queue_id,
            10,
            frozenset({7}),
            run=resume,
        )
        for group in ("g", "h")
        for queue_id in (0, 1)
    }
    for pull in pulls.values():
        service.suspend(pull, 10, 60_000)
    service.wake_group("g", "Topic", 1)
    service.wake_group("g", "Other", 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert resumed == [pulls["g", 1]]
    assert service.held == 3
    await service.stop()


def held_service(settings: dict[str, int] | None = None) -> PullRequestHoldService:
    return PullRequestHoldService(BrokerConfig.model_validate(settings or {}))


def pull(connection: FakeConnection, queue_id: int = 0, *codes: int, **fields: Any) -> PullRequest:
    return PullRequest(connection, request(11), "Topic", queue_id, 10, frozenset(codes) or None, run=resume, **fields)


@pytest.mark.parametrize(
    ("name", "other_is_refused"), [("max_held_pulls_per_connection", False), ("max_held_pulls", True)]
)
async def test_pulls_are_held_up_to_the_limit(name: str, other_is_refused: bool) -> None:
    service = held_service({name: 2})
    greedy, other = FakeConnection(), FakeConnection()
    for queue_id in range(2):
        service.suspend(pull(greedy, queue_id), 10, 60_000)

    for connection in [greedy, other] if other_is_refused else [greedy]:
        with pytest.raises(BrokerResponseError, match=r"maxHeldPulls\w*: 2 pulls are held and the limit is 2") as error:
            service.suspend(pull(connection, 2), 10, 60_000)
        assert error.value.code == ResponseCode.SYSTEM_BUSY
    if not other_is_refused:
        service.suspend(pull(other, 2), 10, 60_000)
    service.on_close(other)

    assert service.held == 2
    assert list(service._requests._by_connection) == [greedy]
    service.on_close(greedy)
    assert (service.held, service.waiting, service._requests._by_connection, service._requests.weight) == (
        0,
        False,
        {},
        0,
    )
    await service.stop()


async def test_an_address_gets_as_many_as_it_leaves_to_others() -> None:
    service = held_service({"max_held_pulls": 15})

    def hold_from(host: str) -> int:
        """Hold pulls of several connections of an address until one is refused; return how many are held."""
        for count in range(20):
            try:
                service.suspend(pull(FakeConnection(f"{host}:{count}"), count), 10, 60_000)
            except BrokerResponseError:
                return count
        return 20

    assert [hold_from(f"192.0.2.{number}") for number in (1, 2, 3)] == [8, 4, 2]
    with pytest.raises(BrokerResponseError, match=r"14 pulls are held, 8 of them from this address and"):
        service.suspend(pull(FakeConnection("192.0.2.1:99")), 10, 60_000)
    assert hold_from("127.0.0.1") == 1, "this machine may take all that is left"
    for connection in list(service._requests._by_connection):
        service.on_close(connection)
    assert hold_from("192.0.2.9") == 8
    await service.stop()


async def test_a_pull_is_held_no_longer_than_the_broker_says() -> None:
    service = held_service({"max_suspend_timeout_millis": 1_000})
    asked = [86_400_000, 1_000, 500, 0, -5]
    pulls = [pull(FakeConnection(), number) for number in range(len(asked))]
    for each, timeout_ms in zip(pulls, asked, strict=True):
        service.suspend(each, 10, timeout_ms)

    longest, same, half, none, negative = (each.deadline for each in pulls)

    assert 0 <= same - longest <= 1, "in ticks of 50 ms"
    assert 9 <= longest - half <= 11
    assert 0 <= negative - none <= 1
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
    held = PullRequest(FakeConnection(), request(11), "Topic", 0, 10, run=resume, **values)
    service = held_service({"max_held_pulls": weight})
    service.suspend(held, 10, 60_000)
    with pytest.raises(BrokerResponseError, match="maxHeldPulls"):
        service.suspend(pull(FakeConnection()), 10, 60_000)
    await service.stop()


class CountedCodes(frozenset[int]):
    """Tags codes that count how often they are looked at."""

    looked = 0

    def __contains__(self, code: object) -> bool:
        type(self).looked += 1
        return super().__contains__(code)


async def test_a_message_looks_at_few_of_the_pulls_that_do_not_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedCodes, "looked", 0)
    service = held_service()
    connection = FakeConnection()
    for _ in range(2_000):
        service.suspend(PullRequest(connection, request(11), "Topic", 0, 10, CountedCodes({7}), run=resume), 10, 60_000)
    service.suspend(wanting := pull(connection, 0, 8, 9), 10, 60_000)

    for message in range(100):
        service.arriving("Topic", 0, 11 + message, 1)
    assert CountedCodes.looked <= 4 * 100
    service.arriving("Topic", 0, 111, 9)
    await turns(2)

    assert resumed == [wanting]
    assert service.held == 2_000
    service.arriving("Topic", 0, 112, 7)
    await turns(100)
    assert (len(resumed), service.held) == (2_001, 0)
    await service.stop()


async def test_pulls_of_a_connection_are_answered_by_one_write_in_the_turn_after_the_message() -> None:
    service = held_service()
    connection, other = FakeConnection(), FakeConnection()
    for each in (connection, connection, other, connection):
        service.suspend(pull(each), 10, 60_000)

    service.arriving("Topic", 0, 11, 0)
    await turns(1)

    assert [(len(each.answers), each.writes) for each in (connection, other)] == [(3, 1), (1, 1)]
    await service.stop()


class FailingConnection(FakeConnection):
    """A connection that fails to answer, or to write."""

    def __init__(self, method: str) -> None:
        super().__init__()
        setattr(self, method, self._fail)

    def _fail(self, *_: object) -> None:
        raise RuntimeError("it fails")


@pytest.mark.parametrize("method", ["answer", "flush"])
@pytest.mark.parametrize("has_match", [None, lambda: True], ids=["by tags", "by a filter"])
async def test_a_pull_that_fails_harms_no_other(
    method: str, has_match: Callable[[], bool] | None, caplog: pytest.LogCaptureFixture
) -> None:
    service = held_service()
    others = [FakeConnection() for _ in range(100)]
    for number, connection in enumerate([*others[:9], FailingConnection(method), *others[9:]]):
        service.suspend(pull(connection, has_match=has_match), 10, 60_000)
        assert service.held == number + 1

    service.arriving("Topic", 0, 11, 0)
    await turns(10)

    assert [len(each.answers) for each in others] == [1] * 100
    assert (service.held, service._requests._answered) == (0, set())
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    await service.stop()


async def test_a_turn_of_the_loop_runs_few_of_the_pulls_that_were_woken() -> None:
    service = held_service()
    for _ in range(1_000):
        service.suspend(pull(FakeConnection()), 10, 60_000)
    service.arriving("Topic", 0, 11, 0)
    service.arriving("Topic", 0, 12, 0)

    before, most = 0, 0
    for _ in range(30):
        await turns(1)
        most, before = max(most, len(resumed) - before), len(resumed)

    assert (most, len(set(resumed)), len(resumed), service.held) == (64, 1_000, 1_000, 0)
    await service.stop()


async def test_a_turn_of_the_loop_asks_few_filters() -> None:
    asked: list[int] = []
    service = held_service()

    def matches(number: int) -> bool:
        asked.append(number)
        return number == 50

    for number in range(100):
        service.suspend(pull(FakeConnection(), has_match=partial(matches, number)), 10, 60_000)
    for offset in range(11, 20):
        service.arriving("Topic", 0, offset, 0)

    before, most = 0, 0
    for _ in range(20):
        await turns(1)
        most, before = max(most, len(asked) - before), len(asked)

    assert (most, sorted(asked), len(resumed)) == (16, list(range(100)), 1)
    await service.stop()


async def test_pulls_whose_time_is_over_together_are_run_a_few_in_a_turn() -> None:
    service = held_service()
    for _ in range(1_000):
        service.suspend(pull(FakeConnection()), 10, 1)
    most = 0
    async with asyncio.timeout(60):
        while service.held:
            before = len(resumed)
            await turns(1)
            most = max(most, len(resumed) - before)
    assert (most, len(resumed), len(service._requests._deadlines)) == (64, 1_000, 0)
    await service.stop()


async def test_the_check_goes_through_many_queues_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_request_hold_service, "_MOST_CHECKED", 20)
    service = held_service()
    for queue_id in range(100):
        service.suspend(pull(FakeConnection(), queue_id, 7), 11 if queue_id in {3, 50} else 10, 60_000)

    check = asyncio.ensure_future(service._check_held())
    await turns(3)
    assert [each.queue_id for each in resumed] == [3]
    assert not check.done()
    await check
    await turns(2)

    assert [each.queue_id for each in resumed] == [3, 50]
    await service.stop()


async def test_the_check_drops_queues_without_pulls() -> None:
    service = held_service()
    service.suspend(pull(FakeConnection(), 0), 10, 60_000)
    service.suspend(pull(FakeConnection(), 1), 10, 60_000)
    service.arriving("Topic", 0, 11, 0)
    await turns(2)
    assert (len(resumed), service.waiting) == (1, True)
    await service._check_held()
    assert list(service._held) == [("Topic", 1)]
    service.arriving("Topic", 1, 11, 0)
    await turns(2)
    assert (len(resumed), service.waiting) == (2, False)
    await service.stop()


async def test_all_pulls_of_a_slave_end_when_its_master_is_back() -> None:
    service = held_service()
    for queue_id in range(3):
        service.suspend(pull(FakeConnection(), queue_id, 7), 10, 60_000)

    service.master_online()
    await turns(2)

    assert (len(resumed), service.held) == (3, 0)
    await service.stop()
