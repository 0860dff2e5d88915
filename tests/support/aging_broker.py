"""A broker of small log files that removes nothing unless it is asked, and whose files a test can make old."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.our_servers import OurServer, OurServers, wait_serving
from tests.support.raw_client import RawAnswer, RawClient
from tests.support.waiting import wait_until

SEND_V2, PULL, QUERY_MESSAGE, RUNTIME_INFO, GET_MIN, GET_MAX, EARLIEST = 310, 11, 12, 28, 31, 30, 32
DELETE_EXPIRED_COMMITLOG, CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC = 329, 306, 316
SUCCESS, PULL_OFFSET_MOVED = 0, 21
TOPIC = "Old"
LOG_FILE = 1 << 16
BODY_SIZE = 1 << 14  # three messages fill a file


def body_of(n: int) -> bytes:
    return f"{n} ".encode().ljust(BODY_SIZE, b"x")


class AgingBroker:
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

    def clean(self, count: int) -> None:
        """Let the broker remove the oldest files of the log."""
        first = int(self.log_files()[count].name)
        self.age(count)
        assert self.ask(DELETE_EXPIRED_COMMITLOG).code == SUCCESS
        wait_until(lambda: int(self.log_files()[0].name) == first, "the log is cleaned")
