"""Our broker on a small disk, by the shares of it from which on messages are removed and sends are refused."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.codec.remoting.request_code import RequestCode
from tests.integration.test_full_disk import (
    BODY_SIZE,
    DISK_SIZE,
    SETTINGS,
    SUCCESS,
    UPDATE_CONSUMER_OFFSET,
    WARNING_LEVEL,
    SmallDiskBroker,
    check_refused,
)
from tests.support.our_servers import OurServer, OurServers
from tests.support.private_disk import PrivateDisk
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDiskBroker]:
    """Served from a disk of its own, with ``cleanFileForciblyEnable`` as given."""
    settings = SETTINGS | {
        "diskSpaceWarningLevelRatio": WARNING_LEVEL,
        "cleanResourceInterval": 200,
        "cleanFileForciblyEnable": request.param,
    }
    with PrivateDisk(DISK_SIZE) as disk:
        broker = SmallDiskBroker(OurServers(tmp_path), disk, settings)
        try:
            broker.start()
            yield broker
        finally:
            broker.close()


@pytest.mark.long
@pytest.mark.parametrize("small_disk", ["false"], indirect=True)
def test_sends_are_rejected_with_the_usage_above_the_warning_level(small_disk: SmallDiskBroker):
    for _ in range(50):
        assert small_disk.send().code == SUCCESS
    # There is room for the next file of the log, and for what comes before the share is measured again.
    small_disk.occupy(small_disk.room() - DISK_SIZE * 9 // 100)

    wait_until(lambda: small_disk.send().code != SUCCESS, "sends are rejected")
    answer = small_disk.send()
    check_refused(answer)
    assert f"[DISK_FULL] the disk of {small_disk.disk.path / 'store'}/" in answer.remark
    measured = re.search(r"is ([0-9.]+) % full, above the limit of 90 % \(diskSpaceWarningLevelRatio\)", answer.remark)
    assert measured is not None, answer.remark
    assert 90 < float(measured[1]) <= 100
    assert small_disk.room() > 0, "it is the share that refuses, not the disk"
    small_disk.check_readable()
    small_disk.vacate()
    small_disk.wait_taken()
    small_disk.check_readable()


def losses(broker: OurServer) -> list[tuple[int, int]]:
    """Return the first and the last offset of each range that the log says is lost."""
    lines = re.findall(
        r"group CG_Full loses messages of topic Full, queue 0: offsets ([0-9]+) to ([0-9]+)", broker.text()
    )
    return [(int(first), int(last)) for first, last in lines]


def min_offset(small_disk: SmallDiskBroker) -> int:
    return int(small_disk.client.ask(RequestCode.GET_MIN_OFFSET, {"topic": "Full", "queueId": "0"}).fields["offset"])


def check_kept(small_disk: SmallDiskBroker, begin: int = 0) -> int:
    """Check that all is readable but what the log says is lost, and return the first offset that is kept.

    Old files may be removed meanwhile: files that are allocated ahead, also by a start, take room.

    Args:
        begin: the first offset that was kept when the broker started.
    """

    def kept() -> int:
        lost = losses(small_disk.broker)
        return lost[-1][1] + 1 if lost else begin

    while True:
        wait_until(lambda: kept() == min_offset(small_disk), "each loss is logged, and nothing else is removed")
        first = kept()
        small_disk.acknowledged = {
            (topic, offset): n for (topic, offset), n in small_disk.acknowledged.items() if offset >= first
        }
        try:
            small_disk.check_readable()
        except AssertionError:
            if kept() == first:
                raise
        else:
            return first


@pytest.mark.parametrize("small_disk", ["true"], indirect=True)
@pytest.mark.long
def test_oldest_messages_are_removed_and_reported_above_the_forced_level(small_disk: SmallDiskBroker):
    assert small_disk.send().code == SUCCESS
    small_disk.check_readable()  # the group comes to be with its first pull
    with RawClient(small_disk.broker.address) as client:
        fields = {"consumerGroup": "CG_Full", "topic": "Full", "queueId": "0", "commitOffset": "1"}
        assert client.ask(UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS
    for _ in range(2 * DISK_SIZE // BODY_SIZE):
        small_disk.wait_taken()
    wait_until(lambda: small_disk.room() >= DISK_SIZE * 15 // 100, "files are removed")

    begin = check_kept(small_disk)
    lost = losses(small_disk.broker)
    assert lost, small_disk.broker.text()[-4000:]
    assert lost[0][0] == 1, "what the group had consumed is not lost"
    assert [first for first, _ in lost[1:]] == [last + 1 for _, last in lost[:-1]]
    assert len(small_disk.acknowledged) * BODY_SIZE > DISK_SIZE // 2
    small_disk.restart(OurServer.kill)
    check_kept(small_disk, begin)
    small_disk.wait_taken()
