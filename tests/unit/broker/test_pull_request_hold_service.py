"""The periodic check of held pulls, and what wakes them."""

import asyncio
from types import SimpleNamespace

import pytest

from rocketbroker.broker import pull_request_hold_service
from rocketbroker.broker.pull_request_hold_service import PullRequest, PullRequestHoldService
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
    assert "PullRequestHoldService.check failed" in caplog.text


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
    first = next(iter(service._held["Topic", 0]))  # they are woken in the order of the set
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


async def test_a_connection_holds_so_many_pulls_and_no_more(monkeypatch) -> None:
    monkeypatch.setattr(pull_request_hold_service, "MAX_HELD_BY_CONNECTION", 2)
    service = PullRequestHoldService(BrokerConfig())
    service.bind(lambda _request: None, lambda _topic, _queue_id: 0)
    greedy, other = FakeConnection(), FakeConnection()
    for queue_id in range(2):
        service.suspend(PullRequest(greedy, None, "Topic", queue_id, 10, None), 60_000)

    with pytest.raises(BrokerResponseError, match="2 pulls of this connection are held, which is the limit") as error:
        service.suspend(PullRequest(greedy, None, "Topic", 2, 10, None), 60_000)
    service.suspend(PullRequest(other, None, "Topic", 2, 10, None), 60_000)

    assert error.value.code == ResponseCode.SYSTEM_BUSY
    assert held_count(service) == 3
    service.on_close(greedy)
    assert held_count(service) == 1
    await service.stop()
