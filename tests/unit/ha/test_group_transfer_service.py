"""Messages wait until as many slaves have them as inSyncReplicas says, and no longer than slaveTimeout."""

import asyncio
from itertools import count
from typing import Any

import pytest

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.ha.group_transfer_service import GroupTransferService
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import ACKNOWLEDGED, Acknowledgement, outcome_of


def service(acks: list[int], **settings: Any) -> GroupTransferService:
    found = GroupTransferService(MessageStoreConfig(**settings))
    found.ack_offsets = lambda: acks
    return found


def wait(transfers: GroupTransferService, offset: int) -> asyncio.Future[Acknowledgement]:
    result = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=offset - 10, size=10)
    return outcome_of(lambda tell: transfers.acknowledge(result, tell))


async def test_one_replica_is_the_master_alone_and_waits_for_nobody():
    assert wait(service([]), 100).result() == ACKNOWLEDGED


@pytest.mark.parametrize(
    ("needed", "acks", "acknowledged"),
    [(2, [], 0), (2, [100], 1), (2, [99], 0), (2, [5, 200], 2), (3, [100, 100], 1), (3, [200, 99], 0), (3, [300], 0)],
)
async def test_the_slowest_slave_that_is_needed_counts(needed: int, acks: list[int], acknowledged: int):
    transfers = service(acks, in_sync_replicas=needed, slave_timeout=60_000)
    waits = [wait(transfers, 100), wait(transfers, 200)]

    transfers.reported()

    assert [each.done() for each in waits] == [number < acknowledged for number in range(2)]
    assert all(each.result() == ACKNOWLEDGED for each in waits[:acknowledged])


async def test_a_late_slave_ends_the_wait_with_the_reason_and_the_next_one_has_its_own_time():
    acks = [100]
    transfers = service(acks, in_sync_replicas=2, slave_timeout=30)
    late = await wait(transfers, 200)

    assert late.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert "not on 1 slaves within 30 ms (inSyncReplicas, slaveTimeout)" in late.reason
    following = wait(transfers, 300)
    acks[:] = [300]
    transfers.reported()
    assert following.result() == ACKNOWLEDGED


async def test_slaves_are_described_once_for_all_late_messages():
    transfers, numbers = service([], in_sync_replicas=2, slave_timeout=20), count(1)
    transfers.slaves = lambda: f"text {next(numbers)}"
    late = [await each for each in [wait(transfers, 100) for _ in range(5)]]

    assert {each.reason[-8:] for each in late} == {"; text 1"}


def set_hot(transfers: GroupTransferService, **settings: int) -> None:
    transfers._config.__dict__.update(settings)


async def test_a_lower_timeout_applies_to_waits_that_began_before_and_after():
    transfers = service([], in_sync_replicas=2, slave_timeout=600_000)
    first = wait(transfers, 100)
    set_hot(transfers, slave_timeout=20)
    second = wait(transfers, 200)
    transfers.reported()

    async with asyncio.timeout(60):
        for each in (first, second):
            assert (await each).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


async def test_waits_end_when_no_slave_is_needed_any_more():
    transfers = service([], in_sync_replicas=2, slave_timeout=600_000)
    waiting = wait(transfers, 100)
    set_hot(transfers, in_sync_replicas=1)
    transfers.reported()

    assert waiting.result() == ACKNOWLEDGED
    assert transfers._patience is None
