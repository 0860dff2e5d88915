"""A producer on a thread that sends until it is stopped, to a broker that may be away for a while."""

import asyncio
import threading
from contextlib import suppress

from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.common.errors import RocketBrokerError
from tests.support.streaming_query import FOLLOWED
from tests.support.waiting import wait_until

LIMIT_S = 400  # a machine may have much else to do
PAUSE_S = 0.01  # between two messages: a producer at full speed would take the machine from Spark


class SteadyLoad:
    """Sends numbered messages to the topic ``FOLLOWED``."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._ending = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        async with Producer("PG", self._namesrv, send_timeout_s=10) as producer:
            while not self._ending.is_set():
                with suppress(RocketBrokerError):
                    body = b"%08d" % self.sent + bytes(3_000)
                    await producer.send(Message(FOLLOWED, body, keys=f"k{self.sent}"))
                    self.sent += 1
                await asyncio.sleep(PAUSE_S)

    def __enter__(self) -> "SteadyLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def wait_for(self, more: int) -> None:
        """Till so many more messages were acknowledged."""
        wanted = self.sent + more
        wait_until(lambda: self.sent >= wanted, f"{more} messages were not taken", LIMIT_S)
