"""The periodic check of held pulls, whose queue may have grown by messages that they do not want."""

import asyncio

from rocketbroker.broker.pull_request_hold_service import PullRequest, PullRequestHoldService
from rocketbroker.common.config import BrokerConfig
from tests.support.fakes import FakeConnection


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
    assert service.held_count == 1, "where nothing came, the pull stays held"
    await service.stop()
