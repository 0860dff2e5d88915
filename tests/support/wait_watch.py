"""A bystander of a server: the work of the server that its small requests wait for while others do what they like."""

import threading
from types import TracebackType
from typing import Self

from tests.support.our_servers import OurServer, cpu_seconds
from tests.support.raw_client import RawClient

GET_MAX_OFFSET = 30
PAUSE_S = 0.005


class WaitWatch:
    """A client that repeatedly requests the end of a queue over its own connection.

    ``longest_s`` is the most CPU time that the broker used up while one answer was awaited: that of others on a busy
    machine does not count.

    Args:
        broker: is asked.
    """

    def __init__(self, broker: OurServer) -> None:
        self.longest_s = 0.0
        self.answers = 0
        self._broker = broker
        self._client = RawClient(broker.address)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="WaitWatch")

    def __enter__(self) -> Self:
        self._ask()  # what follows may be over before the thread asks
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._client.close()

    def _watch(self) -> None:
        while not self._ends.wait(PAUSE_S):
            self._ask()

    def _ask(self) -> None:
        begin = cpu_seconds(self._broker)
        answer = self._client.ask(GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
        self.longest_s = max(self.longest_s, cpu_seconds(self._broker) - begin)
        self.answers += answer.code == 0
