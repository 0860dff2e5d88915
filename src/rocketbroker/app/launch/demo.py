"""``mqdev --demo``: send and consume messages over TCP, then count them in the store with Spark.

The numbers sent, received and counted must be equal for each queue; otherwise the exit code is 1.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from contextlib import aclosing, suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from rocketbroker.analytics.spark.local_session import JavaRuntimeError, ensure_java_home
from rocketbroker.app.command_line import INSTALL_ANALYTICS
from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.app.server_process import run
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.errors import TopicRouteError
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import ConfigError, RocketBrokerError

TOPIC = "DemoTopic"
GROUP = "mqdev_demo"
QUEUES = 4
IN_FLIGHT = 64
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
_CONSUME_TIMEOUT_S = 60.0
_ROUTE_TIMEOUT_S = 5.0
_PROPERTY_RUN = "demoRun"
_PROPERTY_NUMBER = "demoNumber"


class Outcome(msgspec.Struct):
    """Numbers of messages by queue for each part of the demo, and the problems found."""

    stored_before: Counter[int] = msgspec.field(default_factory=Counter)
    sent: Counter[int] = msgspec.field(default_factory=Counter)
    received: Counter[int] = msgspec.field(default_factory=Counter)
    counted: Counter[int] = msgspec.field(default_factory=Counter)
    send_s: float = 0.0
    receive_s: float = 0.0
    spark_s: float = 0.0
    problems: list[str] = msgspec.field(default_factory=list)


def disagreements(outcome: Outcome) -> list[str]:
    """Return one line for each queue with different numbers."""
    queues = sorted(outcome.sent | outcome.received | outcome.counted | outcome.stored_before)
    lines = []
    for queue in queues:
        sent, received = outcome.sent[queue], outcome.received[queue]
        counted = outcome.counted[queue] - outcome.stored_before[queue]
        if not sent == received == counted:
            lines.append(f"queue {queue}: {sent} sent, {received} received, {counted} counted")
    return lines


def show(outcome: Outcome, number: int, console: Console) -> None:
    """Print the numbers by queue, the rates and the verdict."""
    table = Table(title=f"{TOPIC} by queue", show_footer=True, title_justify="left")
    table.add_column("Queue", "all")
    for title, counter in (("Sent", outcome.sent), ("Received", outcome.received)):
        table.add_column(title, f"{counter.total():,}", justify="right")
    counted = Counter({queue: outcome.counted[queue] - outcome.stored_before[queue] for queue in outcome.counted})
    table.add_column("Counted by Spark", f"{counted.total():,}", justify="right")
    for queue in sorted(outcome.sent | outcome.received | counted):
        numbers = (outcome.sent[queue], outcome.received[queue], counted[queue])
        table.add_row(str(queue), *(f"{each:,}" for each in numbers))
    console.print(table)
    before = outcome.stored_before.total()
    if before:
        console.print(f"(Spark also counted {before:,} messages of earlier runs in the store.)")
    console.print(f"Sent     {number:,} in {outcome.send_s:.2f} s, {number / outcome.send_s:,.0f} a second")
    came = outcome.received.total()
    console.print(f"Received {came:,} in {outcome.receive_s:.2f} s, {came / outcome.receive_s:,.0f} a second")
    console.print(f"Counted  {counted.total():,} by Spark in {outcome.spark_s:.1f} s, its start included")
    for problem in outcome.problems[:10]:
        console.print(f"PROBLEM: {problem}", markup=False)
    if not outcome.problems:
        console.print(f"Sent, received and counted agree: {number:,} messages, each exactly once.")


def run_demo(server: DevServer, number: int) -> int:
    """Start the server, run the demo with ``number`` messages, stop the server; return the exit code.

    Raises:
        ConfigError: Spark cannot run on this machine.
    """
    check_spark()
    codes: list[int] = []
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        run(_run(server, number, codes))
    return codes[0] if codes else EXIT_INTERRUPTED


def check_spark() -> None:
    """Check that Spark can run.

    Raises:
        ConfigError: A package or Java is missing.
    """
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"the demo counts with Spark, and {missing[0]} is missing: {INSTALL_ANALYTICS}")
    try:
        ensure_java_home()
    except JavaRuntimeError as error:
        raise ConfigError(f"the demo counts with Spark. {error}") from error


async def _run(server: DevServer, number: int, codes: list[int]) -> None:
    task = asyncio.current_task()
    assert task is not None
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    console = Console(highlight=False)
    await server.start()
    try:
        console.print(f"name server {server.namesrv_addr}, broker {server.broker_addr}")
        outcome = await demonstrate(server, number, console)
    except* RocketBrokerError as errors:
        print(f"mqdev: {first_of(errors)}", file=sys.stderr)
        codes.append(EXIT_FAILED)
    else:
        show(outcome, number, console)
        codes.append(EXIT_FAILED if outcome.problems else 0)
    finally:
        await server.stop()


def first_of(error: BaseException) -> BaseException:
    """Return the first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def demonstrate(server: DevServer, number: int, console: Console) -> Outcome:
    """Send, receive and count messages, and compare the numbers."""
    outcome = Outcome()
    now = asyncio.get_running_loop().time
    await make_topic(server)
    console.print(f"Sending and receiving {number:,} messages ...")
    await send_and_receive(server.namesrv_addr, number, outcome)
    console.print("Spark counts the store ...")
    start = now()
    outcome.counted = await count_by_spark(server.store)
    outcome.spark_s = now() - start
    outcome.problems += disagreements(outcome)
    return outcome


async def make_topic(server: DevServer) -> None:
    """Create the topic and wait until the name server knows it."""
    async with AdminClient(server.namesrv_addr) as admin, asyncio.timeout(_ROUTE_TIMEOUT_S):
        await admin.create_and_update_topic_config(server.broker_addr, TopicConfig(TOPIC, QUEUES, QUEUES))
        while True:
            try:
                await admin.examine_topic_route_info(TOPIC)
            except TopicRouteError:
                await asyncio.sleep(0.02)
            else:
                return


async def send_and_receive(namesrv_addr: str, number: int, outcome: Outcome) -> None:
    """Send and consume messages concurrently."""
    async with Producer(GROUP, namesrv_addr) as producer, PullConsumer(GROUP, namesrv_addr) as consumer:
        for queue in await consumer.fetch_subscribe_queues(TOPIC):
            # Messages of earlier runs in a kept store are not consumed again, but Spark counts them.
            first, after_last = await consumer.min_offset(queue), await consumer.max_offset(queue)
            outcome.stored_before[queue.queue_id] = after_last - first
            await consumer.commit_offset(queue, after_last)
        run_id = os.urandom(8).hex()
        async with asyncio.TaskGroup() as group:
            group.create_task(send(producer, run_id, number, outcome))
            group.create_task(receive(consumer, run_id, number, outcome))


def body_of(number: int) -> bytes:
    """Return the body of message ``number``."""
    return b"Message %d went through the wire." % number


async def send(producer: Producer, run_id: str, number: int, outcome: Outcome) -> None:
    """Send messages 0 ... number - 1, several at a time."""
    numbers = iter(range(number))
    start = asyncio.get_running_loop().time()

    async def work() -> None:
        for each in numbers:
            properties = {_PROPERTY_RUN: run_id, _PROPERTY_NUMBER: str(each)}
            message = Message(TOPIC, body_of(each), tags="demo", keys=f"demo-{each}", properties=properties)
            result = await producer.send(message)
            outcome.sent[result.message_queue.queue_id] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(min(IN_FLIGHT, number)):
            group.create_task(work())
    outcome.send_s = asyncio.get_running_loop().time() - start


async def receive(consumer: PullConsumer, run_id: str, number: int, outcome: Outcome) -> None:
    """Consume until all messages have arrived, or none for a minute; check that each arrived once and unchanged."""
    seen: Counter[int] = Counter()
    start = asyncio.get_running_loop().time()
    async with aclosing(consumer.iterate(TOPIC)) as messages:
        while outcome.received.total() < number:
            try:
                async with asyncio.timeout(_CONSUME_TIMEOUT_S):
                    message = await anext(messages)
            except TimeoutError:
                outcome.problems.append(f"no message arrived for {_CONSUME_TIMEOUT_S:g} s")
                break
            each = check(message, run_id, number, outcome)
            if each is not None:
                seen[each] += 1
                outcome.received[message.queue_id] += 1
        outcome.receive_s = asyncio.get_running_loop().time() - start
    doubles = sum(times > 1 for times in seen.values())
    if doubles:
        outcome.problems.append(f"{doubles} messages arrived more than once")
    if len(seen) < number:
        outcome.problems.append(f"{number - len(seen)} messages never arrived")


def check(message: MessageExt, run_id: str, number: int, outcome: Outcome) -> int | None:
    """Return the number of a message, None if another run sent it; record a problem if it differs from the sent one."""
    properties = message.properties
    if properties.get(_PROPERTY_RUN) != run_id:
        outcome.problems.append(f"message {message.offset_msg_id} was not sent by this run")
        return None
    each = int(properties[_PROPERTY_NUMBER])
    right = (body_of(each), "demo", [f"demo-{each}"])
    if not 0 <= each < number or (message.body, message.tags, message.keys) != right:
        outcome.problems.append(f"message {each} arrived as {message.body!r}, {message.tags}, {message.keys}")
    return each


async def count_by_spark(store: Path) -> Counter[int]:
    """Count the messages of the topic by queue with ``mqanalytics count``, in a process beside the running broker.

    Raises:
        RocketBrokerError: The count failed; the text has its last line on stderr.
    """
    start = "from rocketbroker.app.mqanalytics.cli import main; main()"
    # -P: files in the caller's directory must not be imported as modules.
    command = (sys.executable, "-P", "-c", start, "count", str(store), "--engine", "spark", "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise RocketBrokerError(f"the count by Spark failed: {lines[-1]}")
    rows = json.loads(out)["queues"]
    return Counter({row["queueId"]: row["messages"] for row in rows if row["topic"] == TOPIC})
