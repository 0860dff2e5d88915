from pathlib import Path

import pytest

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import StoreError
from tests.support.fakes import FakeClock

PATH = Path("consumerOffset.json")


@pytest.mark.parametrize("refused", [False, True])
async def test_it_is_done_when_it_is_on_disk(refused):
    submitted: list[object] = []
    offsets = ConsumerOffsetManager(PATH, FakeClock(), submitted.append)

    async def drain():
        assert submitted == [offsets], "what is waited for was submitted"
        return {PATH} if refused else {Path("topics.json")}

    config = BrokerConfig()
    reset = OffsetReset(config, offsets, PullRequestHoldService(config), drain)
    reset.assign("g", "T", {0: 7, 1: 8})
    assert offsets.offsets_of("g", "T") == {0: 7, 1: 8}
    if refused:
        with pytest.raises(StoreError, match=r"consumerOffset.json cannot be written"):
            await reset.store()
    else:
        await reset.store()
    assert not offsets.commit("g", "T", 0, 9)
