"""Our broker removes old messages while it is used, and goes on from what is left after a restart."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from tests.support.our_servers import OurServer, OurServers, wait_serving
from tests.support.raw_client import RawAnswer, RawClient
from tests.support.waiting import wait_until

SEND_V2, PULL, QUERY_MESSAGE, RUNTIME_INFO, GET_MIN, GET_MAX, EARLIEST = 310, 11, 12, 28, 31, 30, 32
DELETE_EXPIRED_COMMITLOG, CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC = 329, 306, 316
SUCCESS, PULL_OFFSET_MOVED = 0, 21
TOPIC = "Old"
LOG_FILE = 1 << 16
BODY_SIZE = 1 << 14  # three messages fill a file
MESSAGES = 30
LIMIT_S = 30.0


def body_of(n: int) -> bytes:
    return f"{n} ".encode().ljust(BODY_SIZE, b"x")


class Broker:
    """A broker of small files that removes nothing unless it is asked."""

    def __init__(self, servers: OurServers) -> None:
        hour = (time.localtime().tm_hour + 12) % 24
        self.servers = servers
        self.namesrv = servers.namesrv()
        self.store = servers.home / "store"
        self.settings: dict[str, str | int] = {
            "mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": 100, "maxHashSlotNum": 100,
            "maxIndexNum": 20, "defaultTopicQueueNums": 1, "fileReservedTime": 1, "deleteWhen": hour,
            "cleanResourceInterval": 200, "deleteCommitLogFilesInterval": 10, "deleteConsumeQueueFilesInterval": 10,
            "diskMaxUsedSpaceRatio": 100, "diskSpaceCleanForciblyRatio": 100, "diskSpaceWarningLevelRatio": 100,
        }  # fmt: skip
        self.server = self._launch(0)

    def _launch(self, port: int) -> OurServer:
        server = self.servers.launch_broker(self.namesrv.address, self.store, self.settings, port=port)
        wait_serving(server, self.namesrv.address)
        return server

    def restart(self, how: Callable[[OurServer], object]) -> None:
        how(self.server)
        self.server = self._launch(self.server.port)

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RawAnswer:
        with RawClient(self.server.address) as client:
            return client.ask(code, fields or {}, body)

    def send(self, n: int, topic: str = TOPIC) -> None:
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
            "i": f"UNIQ_KEY\x01{n:032}\x02KEYS\x01key{n}\x02", "j": "0", "k": "false", "l": "0", "m": "false",
        }  # fmt: skip
        answer = self.ask(SEND_V2, fields, body_of(n))
        assert (answer.code, answer.fields.get("queueOffset")) == (SUCCESS, str(n)), answer

    def pull(self, offset: int) -> RawAnswer:
        fields = {
            "consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "1",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        return self.ask(PULL, fields)

    def offset(self, code: int) -> int:
        return int(self.ask(code, {"topic": TOPIC, "queueId": "0"}).fields["offset"])

    def check_holds(self, first: int, end: int) -> None:
        """The queue holds these messages and no other."""
        assert (self.offset(GET_MIN), self.offset(GET_MAX)) == (first, end)
        for n in range(first, end):
            found = self.pull(n)
            assert found.code == SUCCESS, (n, found)
            assert body_of(n) in found.body
        moved = self.pull(first - 1)
        assert (moved.code, moved.fields["nextBeginOffset"]) == (PULL_OFFSET_MOVED, str(first))
        with_key = {"topic": TOPIC, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}
        assert self.ask(QUERY_MESSAGE, with_key | {"key": f"key{first}"}).code == SUCCESS
        assert self.ask(QUERY_MESSAGE, with_key | {"key": f"key{first - 1}"}).code != SUCCESS

    def log_files(self) -> list[Path]:
        return sorted((self.store / "commitlog").iterdir())

    def age(self, count: int) -> None:
        """Date the oldest files of the log two hours back."""
        for path in self.log_files()[:count]:
            os.utime(path, (time.time() - 7200, time.time() - 7200))


@pytest.fixture
def broker(servers: OurServers) -> Broker:
    return Broker(servers)


def first_names(folder: Path, count: int) -> list[int]:
    return [int(path.name) for path in sorted(folder.iterdir())[:count]]


@pytest.mark.long
@pytest.mark.parametrize("how", [OurServer.kill, OurServer.stop])
def test_expired_messages_are_removed_on_request_and_all_else_stays(broker: Broker, how: Callable[[OurServer], object]):
    for n in range(MESSAGES):
        broker.send(n)
    with RawClient(broker.server.address) as client:
        first_sent = client.ask(EARLIEST, {"topic": TOPIC, "queueId": "0"}).fields["timestamp"]
    # The index is made a moment after the messages, by a query at the latest.
    with RawClient(broker.server.address) as client:
        client.ask(
            QUERY_MESSAGE, {"topic": TOPIC, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
        )
    first_index_file = min((broker.store / "index").iterdir())

    broker.age(4)
    assert broker.ask(DELETE_EXPIRED_COMMITLOG).code == SUCCESS

    wait_until(lambda: first_names(broker.store / "commitlog", 1) == [4 * LOG_FILE], "the log is cleaned")
    wait_until(lambda: first_names(broker.store / "consumequeue" / TOPIC / "0", 1) == [200], "the queue is cleaned")
    wait_until(lambda: not first_index_file.exists(), "the index file is removed")
    broker.check_holds(12, MESSAGES)
    info = KVTable.decode(broker.ask(RUNTIME_INFO).body).table
    assert info["commitLogMinOffset"] == str(4 * LOG_FILE)
    earliest = broker.ask(EARLIEST, {"topic": TOPIC, "queueId": "0"}).fields["timestamp"]
    assert int(info["earliestMessageTimeStamp"]) == int(earliest) > int(first_sent)
    broker.send(MESSAGES)

    broker.restart(how)
    broker.check_holds(12, MESSAGES + 1)
    for code in (CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC, DELETE_EXPIRED_COMMITLOG):
        assert broker.ask(code).code == SUCCESS
    broker.check_holds(12, MESSAGES + 1)
    broker.send(MESSAGES + 1)
    assert not broker.servers.errors()


@pytest.mark.long
def test_a_queue_without_messages_keeps_its_next_offset(broker: Broker):
    for n in range(6):
        broker.send(n)
    for n in range(3):
        broker.send(n, "New")
    broker.age(2)
    assert broker.ask(DELETE_EXPIRED_COMMITLOG).code == SUCCESS

    wait_until(lambda: broker.offset(GET_MIN) == 6, "the queue begins at the end")
    assert broker.ask(CLEAN_EXPIRED_CONSUMEQUEUE).code == SUCCESS
    assert broker.offset(GET_MAX) == 6
    broker.restart(OurServer.kill)
    assert (broker.offset(GET_MIN), broker.offset(GET_MAX)) == (6, 6)
    broker.send(6)
    broker.check_holds(6, 7)
