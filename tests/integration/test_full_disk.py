"""Our broker on a small disk that is really full: it says so, goes on serving, and takes messages when it can again."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.our_servers import OurServer, OurServers, wait_serving
from tests.support.private_disk import PrivateDisk
from tests.support.raw_client import RawAnswer, RawClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(400)  # thousands of messages, on a machine that may have other work

SEND_V2, PULL, UPDATE_CONSUMER_OFFSET, QUERY = 310, 11, 15, 12
SUCCESS, SERVICE_NOT_AVAILABLE = 0, 14
DISK_SIZE = 32 << 20
BODY_SIZE = 16 << 10
CHUNK = 1 << 20
# Sends go on within 5 s of room on an idle machine; this one may have other work.
SETTINGS: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 2 << 20, "mappedFileSizeConsumeQueue": 20 * 5_000, "maxHashSlotNum": 1_000,
    "maxIndexNum": 500, "flushConsumerOffsetInterval": 200, "defaultTopicQueueNums": 1,
    "cleanFileForciblyEnable": "false",
}  # fmt: skip
# A share of the disk in percent from which on sends are refused; 100 lets them go on until the disk itself refuses.
TO_THE_LAST_BYTE, WARNING_LEVEL = 100, 90


def body_of(n: int) -> bytes:
    return f"{n} ".encode().ljust(BODY_SIZE, b"x")


@dataclass(slots=True)
class SmallDiskBroker:
    """A broker whose store is on a small disk, and what it acknowledged."""

    servers: OurServers
    disk: PrivateDisk
    settings: dict[str, str | int]
    namesrv: OurServer = field(init=False)
    broker: OurServer = field(init=False)
    client: RawClient = field(init=False)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    sent: int = 0

    def start(self) -> None:
        self.namesrv = self.servers.namesrv()
        self._launch(0)

    def _launch(self, port: int) -> None:
        self.broker = self.servers.launch_broker(
            self.namesrv.address, self.disk.path / "store", self.settings, port=port, runner=self.disk.runner
        )
        wait_serving(self.broker, self.namesrv.address)
        self.client = RawClient(self.broker.address)

    def restart(self, how: Callable[[OurServer], object]) -> None:
        how(self.broker)
        self.client.close()
        self._launch(self.broker.port)

    def close(self) -> None:
        self.servers.close()
        if hasattr(self, "client"):
            self.client.close()

    @property
    def root(self) -> Path:
        """The disk as this process reaches it."""
        return self.disk.seen_from_here

    def occupy(self, size: int = DISK_SIZE) -> None:
        """Put a foreign file on the disk: as much as asked, or as there is room for."""
        with (self.root / "foreign").open("ab", buffering=0) as file:
            while size > 0:
                try:
                    size -= file.write(bytes(min(size, CHUNK)))
                except OSError:
                    if self.room() == 0:
                        return

    def vacate(self) -> None:
        (self.root / "foreign").unlink()

    def room(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def send(self, topic: str = "Full") -> RawAnswer:
        """Send the next message, and keep in mind where it is when it is acknowledged."""
        n, self.sent = self.sent, self.sent + 1
        fields = {
            "a": "PG_Full", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
            "i": f"UNIQ_KEY\x01{n:032}\x02KEYS\x01key{n}\x02", "j": "0", "k": "false", "l": "0", "m": "false",
        }  # fmt: skip
        answer = self.client.ask(SEND_V2, fields, body_of(n))
        if answer.code == SUCCESS:
            place = topic, int(answer.fields["queueOffset"])
            assert place not in self.acknowledged, f"{place} was given twice"
            self.acknowledged[place] = n
        return answer

    def send_until_refused(self) -> RawAnswer:
        for _ in range(2 * DISK_SIZE // BODY_SIZE):
            answer = self.send()
            if answer.code != SUCCESS:
                return answer
        raise AssertionError("twice the size of the disk was taken")

    def wait_taken(self, topic: str = "Full") -> None:
        """Send until a message is taken."""
        wait_until(lambda: self.send(topic).code == SUCCESS, f"a message to {topic} is taken")

    def check_readable(self, *, but_last: bool = False) -> None:
        """Every message that was acknowledged is where its sender was told.

        ``but_last``: while the disk is full the last one may be stored and wait for room for its entry in the queue.
        """
        places = dict(self.acknowledged)
        if but_last:
            places.popitem()
        for (topic, offset), n in places.items():
            fields = {
                "consumerGroup": "CG_Full", "topic": topic, "queueId": "0", "queueOffset": str(offset),
                "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            found = self.client.ask(PULL, fields)
            assert found.code == SUCCESS, (topic, offset, found)
            assert body_of(n) in found.body, f"{topic} {offset} is not message {n}"

    def check_alive(self) -> None:
        assert self.broker.process.poll() is None, self.broker.text()[-4000:]


@pytest.fixture(params=[TO_THE_LAST_BYTE])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDiskBroker]:
    """Served from a disk of its own, by the warning level given; skipped where the kernel gives none."""
    with PrivateDisk(DISK_SIZE) as disk:
        servers = OurServers(tmp_path)
        broker = SmallDiskBroker(servers, disk, {**SETTINGS, "diskSpaceWarningLevelRatio": request.param})
        try:
            broker.start()
            yield broker
        finally:
            broker.close()


def check_refused(answer: RawAnswer) -> None:
    assert answer.code == SERVICE_NOT_AVAILABLE, answer
    assert re.search(r"no room|disk", answer.remark, re.IGNORECASE), answer.remark


@pytest.mark.long
def test_a_full_disk_rejects_sends_and_serves_stored_messages(small_disk: SmallDiskBroker):
    small_disk.occupy(6 << 20)
    check_refused(small_disk.send_until_refused())
    taken = len(small_disk.acknowledged)
    assert taken * BODY_SIZE > DISK_SIZE // 2, "most of the disk has been used before"
    for _ in range(20):
        check_refused(small_disk.send())
    small_disk.check_readable(but_last=True)
    small_disk.check_alive()

    small_disk.vacate()
    small_disk.wait_taken()
    small_disk.restart(OurServer.kill)
    small_disk.wait_taken()
    small_disk.check_readable()
    small_disk.restart(OurServer.stop)
    small_disk.wait_taken()
    small_disk.check_readable()
    small_disk.check_alive()


@pytest.mark.long
@pytest.mark.parametrize("small_disk", [TO_THE_LAST_BYTE, WARNING_LEVEL], indirect=True)
def test_sends_are_rejected_while_foreign_data_fills_the_disk(small_disk: SmallDiskBroker):
    for _ in range(50):
        assert small_disk.send().code == SUCCESS
    small_disk.occupy()
    check_refused(small_disk.send_until_refused())
    assert small_disk.room() == 0, "the disk is full to its last byte"
    small_disk.check_readable(but_last=True)
    small_disk.vacate()
    small_disk.wait_taken()
    small_disk.check_readable()
    small_disk.check_alive()


@pytest.mark.long
@pytest.mark.parametrize("how", [OurServer.kill, OurServer.stop])
def test_a_broker_starts_on_a_full_disk_and_serves_stored_messages(
    small_disk: SmallDiskBroker, how: Callable[[OurServer], object]
):
    small_disk.occupy(16 << 20)
    small_disk.send_until_refused()
    small_disk.occupy()
    small_disk.restart(how)
    small_disk.check_readable(but_last=True)
    check_refused(small_disk.send_until_refused())
    small_disk.vacate()
    small_disk.wait_taken()
    small_disk.check_readable()
    small_disk.check_alive()


@pytest.mark.long
def test_queues_index_and_tables_are_written_once_the_disk_has_space(small_disk: SmallDiskBroker):
    for _ in range(10):
        assert small_disk.send().code == SUCCESS
    small_disk.check_readable()  # the group comes to be with its first pull
    small_disk.occupy()
    # The log has blocks ahead: these need new queues, topics and, 500 keys to a file, index files.
    answers = {topic: small_disk.send(topic) for topic in (f"Topic{n}" for n in range(40))}
    for answer in answers.values():
        if answer.code != SUCCESS:
            check_refused(answer)
    fields = {"consumerGroup": "CG_Full", "topic": "Full", "queueId": "0", "commitOffset": "7"}
    assert small_disk.client.ask(UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS
    small_disk.vacate()
    for topic in answers:
        small_disk.wait_taken(topic)
    small_disk.check_readable()
    # Each table by itself: they are tried again at different times, and the broker is killed.
    wait_for_table(small_disk, "consumerOffset.json", r'"Full@CG_Full"\s*:\s*\{\s*"?0"?\s*:\s*7\b')
    for topic in answers:
        wait_for_table(small_disk, "topics.json", rf'"{topic}"')
    small_disk.restart(OurServer.kill)
    small_disk.check_readable()


def wait_for_table(small_disk: SmallDiskBroker, name: str, entry: str) -> None:
    path = small_disk.root / "store" / "config" / name
    wait_until(lambda: path.is_file() and re.search(entry, path.read_text()), f"{entry} is in {path}")
