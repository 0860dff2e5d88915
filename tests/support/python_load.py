"""The load of CrashLoad.java by our own client, in a thread; its output goes to a file in the same form."""

import asyncio
import itertools
import threading
from contextlib import suppress
from pathlib import Path

from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.message import Message, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import RocketBrokerError
from tests.support.crash_load import PRODUCERS, QUEUES, TOPIC

_PAUSE_S = 0.005
_SEND_TIMEOUT_S = 2.0


class PythonLoad:
    """Producers that send each message until it is acknowledged, and a consumer of each queue.

    Args:
        namesrv: address of the name server.
        output: file for the lines.
    """

    def __init__(self, namesrv: str, output: Path) -> None:
        self._namesrv = namesrv
        self._output = output.open("w", buffering=1)
        self._is_stopping = False
        self._closed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._run()], name="load")
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop_sending(self) -> None:
        """End the producers, each once its message is acknowledged."""
        self._is_stopping = True

    def close(self) -> None:
        """End all clients, once."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()
        self._loop.close()
        self._output.close()

    def _print(self, *fields: object) -> None:
        print(*fields, sep="\t", file=self._output)

    async def _run(self) -> None:
        work = asyncio.create_task(self._work())
        closed = asyncio.create_task(self._closed.wait())
        await asyncio.wait([work, closed], return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        closed.cancel()
        with suppress(asyncio.CancelledError):
            await work

    async def _work(self) -> None:
        async with (
            Producer(
                f"PG_{TOPIC}", self._namesrv, send_timeout_s=_SEND_TIMEOUT_S, retry_times_when_send_failed=0
            ) as producer,
            PullConsumer(f"CG_{TOPIC}", self._namesrv) as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            for queue_id in range(QUEUES):
                tasks.create_task(self._consume(consumer, queue_id))
            async with asyncio.TaskGroup() as producers:
                for number in range(PRODUCERS):
                    producers.create_task(self._produce(producer, number))
            self._print("PRODUCED")

    async def _produce(self, producer: Producer, number: int) -> None:
        n = 0
        while not self._is_stopping:
            await self._send_until_acknowledged(producer, number, n)
            n += 1

    async def _send_until_acknowledged(self, producer: Producer, number: int, n: int) -> None:
        queue = MessageQueue(TOPIC, "broker-a", n % QUEUES)
        for attempt in itertools.count():
            await asyncio.sleep(_PAUSE_S)
            body = f"{number} {n} {attempt} {'x' * (n * 37 % 900)}".encode()
            try:
                result = await producer.send(Message(TOPIC, body), queue)
            except RocketBrokerError as error:
                reason = str(error)
            else:
                if result.send_status is SendStatus.SEND_OK:
                    self._print("ACK", number, n, attempt, queue.queue_id, result.queue_offset)
                    return
                reason = result.send_status.name
            self._print("FAIL", number, n, attempt, " ".join(reason.split()))

    async def _consume(self, consumer: PullConsumer, queue_id: int) -> None:
        queue, offset = MessageQueue(TOPIC, "broker-a", queue_id), 0
        while True:
            await asyncio.sleep(_PAUSE_S)
            with suppress(RocketBrokerError):
                found = await consumer.pull(queue, offset)
                for message in found.messages:
                    attempt = [int(word) for word in message.body.split(b" ", 3)[:3]]
                    self._print("GOT", 0, *attempt, queue_id, message.queue_offset)
                offset = found.next_begin_offset
