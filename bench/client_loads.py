"""Loads on one broker through a client of Python: the same work and figures as those of the Java driver (bench/java).

    python -m bench.client_loads CLIENT send  NAMESRV TOPIC SENDERS BODY_BYTES SECONDS
    python -m bench.client_loads CLIENT drain NAMESRV TOPIC GROUP MESSAGES LIMIT_SECONDS

CLIENT is ours, cpp (PyPI rocketmq) or jpype (PyPI pyrocketmq, with the jars of the class path CLIENT_JARS). Only the
standard library and the client itself are imported. The last line is JSON as in ``bench.load.Outcome``.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

LONGEST_WARM_UP_S = 15.0


class Sends:
    """Counts of senders; the first third of the time is warm-up, as in the Java driver."""

    def __init__(self, seconds: float) -> None:
        begun = time.perf_counter()
        self.measure_from = begun + min(LONGEST_WARM_UP_S, seconds / 3)
        self.end = begun + seconds
        self.latencies: list[float] = []
        self.done = self.failed = 0
        self.error = ""

    def note(self, begun: float, error: Exception | None = None) -> bool:
        """Count a send that has ended; return true if there is time for another."""
        now = time.perf_counter()
        if error is not None:
            self.failed += 1
            self.error = self.error or str(error)[:300]
        else:
            self.done += 1
            if begun >= self.measure_from:
                self.latencies.append(now - begun)
        return now < self.end

    def outcome(self) -> dict[str, object]:
        """Return the figures."""
        seconds = time.perf_counter() - self.measure_from
        found = sorted(self.latencies)
        figures: dict[str, object] = {"done": self.done, "failed": self.failed, "error": self.error}
        if found:
            figures |= {"rate": len(found) / seconds}
            figures |= {"p50": found[len(found) // 2] * 1e3, "p99": found[int(len(found) * 0.99)] * 1e3}
        return figures


class Deliveries:
    """Counts of a consumer, from its first to its last delivery."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.complete = threading.Event()
        self._lock = threading.Lock()
        self._received = 0
        self._first = self._last = 0.0

    def note(self, count: int) -> None:
        """Count delivered messages."""
        with self._lock:
            self._last = time.perf_counter()
            self._first = self._first or self._last
            self._received += count
            if self._received >= self.messages:
                self.complete.set()

    def outcome(self) -> dict[str, object]:
        """Return the figures."""
        taken = (self._last - self._first) or float("inf")
        return {"rate": self._received / taken, "done": self._received, "expected": self.messages}


def send_by_threads(send: Callable[[], object], senders: int, seconds: float) -> dict[str, object]:
    """Call ``send`` in threads, each after its previous call."""
    sends = Sends(seconds)

    def work() -> None:
        goes_on = True
        while goes_on:
            begun, failure = time.perf_counter(), None
            try:
                send()
            except Exception as error:  # noqa: BLE001 - any failure is one of the figures
                failure = error
            goes_on = sends.note(begun, failure)

    threads = [threading.Thread(target=work) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sends.outcome()


def ours_send(namesrv: str, topic: str, senders: int, body: bytes, seconds: float) -> dict[str, object]:
    from rocketbroker.client import Message, Producer, RocketBrokerError

    async def work(producer: Producer, sends: Sends) -> None:
        message, goes_on = Message(topic, body), True
        while goes_on:
            begun, failure = time.perf_counter(), None
            try:
                await producer.send(message)
            except RocketBrokerError as error:
                failure = error
            goes_on = sends.note(begun, failure)

    async def main() -> dict[str, object]:
        async with Producer("PG_Bench", namesrv) as producer:
            sends = Sends(seconds)
            await asyncio.gather(*(work(producer, sends) for _ in range(senders)))
            return sends.outcome()

    outcome: dict[str, object] = run_loop(main())
    return outcome


def ours_drain(namesrv: str, topic: str, group: str, deliveries: Deliveries, limit: float) -> None:
    from rocketbroker.client import ConsumeFromWhere, PushConsumer, ReceivedMessage

    async def take(_message: ReceivedMessage) -> None:
        deliveries.note(1)

    async def main() -> None:
        start = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        async with PushConsumer(group, namesrv, handler=take, consume_from_where=start) as consumer:
            await consumer.subscribe(topic)
            await asyncio.to_thread(deliveries.complete.wait, limit)

    run_loop(main())


def run_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run our client on uvloop if it is installed."""
    try:
        factory = import_module("uvloop").new_event_loop
    except ImportError:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def cpp_send(namesrv: str, topic: str, senders: int, body: bytes, seconds: float) -> dict[str, object]:
    client = import_module("rocketmq.client")
    producer = client.Producer("PG_Bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()

    def send() -> None:
        message = client.Message(topic)
        message.set_body(body)
        producer.send_sync(message)

    outcome = send_by_threads(send, senders, seconds)
    producer.shutdown()
    return outcome


def cpp_drain(namesrv: str, topic: str, group: str, deliveries: Deliveries, limit: float) -> None:
    consumer = import_module("rocketmq.client").PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, lambda _message: deliveries.note(1))
    consumer.start()
    deliveries.complete.wait(limit)
    consumer.shutdown()


def start_jpype() -> None:
    """Start the JVM of pyrocketmq in this process."""
    jpype = import_module("jpype")
    import_module("jpype.imports")
    home = os.environ["HOME"]
    jpype.startJVM("-Xmx1g", f"-Duser.home={home}", classpath=[os.environ["CLIENT_JARS"]])


def jpype_send(namesrv: str, topic: str, senders: int, body: bytes, seconds: float) -> dict[str, object]:
    start_jpype()
    producer = import_module("pyrocketmq.client.producer").Producer("PG_Bench")
    message_type = import_module("pyrocketmq.common.message").Message
    producer.setNamesrvAddr(namesrv)
    producer.start()
    outcome = send_by_threads(lambda: producer.send(message_type(topic=topic, body=body)), senders, seconds)
    producer.shutdown()
    return outcome


def jpype_drain(namesrv: str, topic: str, group: str, deliveries: Deliveries, limit: float) -> None:
    start_jpype()
    consumers = import_module("pyrocketmq.client.consumer.consumer")
    listeners = import_module("pyrocketmq.client.consumer.listener")

    class Listener(listeners.MessageListenerConcurrently):  # type: ignore[name-defined,misc]
        def _consumeMessage(self, messages: list[Any], _context: Any) -> Any:  # noqa: N802 - the client's name
            deliveries.note(len(messages))
            return listeners.ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = consumers.PushConsumer(group)
    consumer.setNamesrvAddr(namesrv)
    consumer.setConsumeFromWhere(consumers.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.setConsumeMessageBatchMaxSize(32)
    consumer.subscribe(topic, "*")
    consumer.registerMessageListener(Listener())
    consumer.start()
    deliveries.complete.wait(limit)
    consumer.shutdown()


SENDS = {"ours": ours_send, "cpp": cpp_send, "jpype": jpype_send}
DRAINS = {"ours": ours_drain, "cpp": cpp_drain, "jpype": jpype_drain}


def main(client: str, load: str, namesrv: str, topic: str, *rest: str) -> None:
    """Run one load and print its outcome."""
    if load == "send":
        senders, size, seconds = rest
        outcome = SENDS[client](namesrv, topic, int(senders), b"x" * int(size), float(seconds))
    else:
        group, messages, limit = rest
        deliveries = Deliveries(int(messages))
        DRAINS[client](namesrv, topic, group, deliveries, float(limit))
        outcome = deliveries.outcome()
    print("\n" + json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    # JPype and the C++ client have threads that would hold the process.
    os._exit(0)
