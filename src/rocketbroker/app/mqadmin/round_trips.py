"""Sub-commands that send messages to measure how long brokers take (SendMsgStatusCommand, CLusterSendMsgRTCommand)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import cycle
from typing import Annotated, Any

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, TrueFalse, java_text, print_report, sub_command, with_hint
from rocketbroker.app.terminal import Column, Table, json_list, say
from rocketbroker.app.times import human_seconds
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.cluster_admin import brokers_of
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.client.core.message import Message, SendResult
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RocketBrokerError

# Body of each message of sendMsgStatus, repeated up to its size, and the size of the first, which is not measured.
_BODY = b"hello jodie"
_FIRST_SIZE = 16
_MAX_SIZE = 4 << 20

Size = typer.Option("-s", "--messageSize", min=1, max=_MAX_SIZE, metavar="BYTES", help="Size of a message.")


class SendRow(msgspec.Struct, rename="camel"):
    """One send: its time in ms, and where the message is."""

    rt: int
    send_status: str
    msg_id: str
    offset_msg_id: str
    broker_name: str
    queue_id: int
    queue_offset: int


@sub_command("sendMsgStatus", "Send messages to a broker and show the time of each.")
async def send_msg_status(
    admin: AdminClient,
    broker_name: Annotated[str, typer.Option("-b", "--brokerName", metavar="NAME", help="Name of the broker.")],
    message_size: Annotated[int, Size] = 128,
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, max=1_000_000, metavar="COUNT", help="Number of messages.")
    ] = 50,
    as_json: bool = False,
) -> Report:
    """Send messages to the topic that has the broker's name, and show the time of each as it comes."""
    queues = cycle(await _queues_at(admin, broker_name))
    with ExitStack() as stack:
        show: Callable[[Any], None] = say
        if as_json:
            show = stack.enter_context(json_list({"brokerName": broker_name}, "sends"))
        async with Producer("PID_SMSC", admin.config) as producer:
            for number in range(-1, count):  # the first, which connects, is not shown
                size = _FIRST_SIZE if number < 0 else message_size
                try:
                    took_ms, result = await _timed(producer.send, Message(broker_name, _body(size)), next(queues))
                except RocketBrokerError as error:
                    error.add_note(f"{number + 1} of {count + 1} messages were sent before")
                    raise
                if number >= 0:
                    text = f"rt={round(took_ms)}ms, SendResult={send_result_text(result)}"
                    show(_send_row(took_ms, result) if as_json else text)
    return Report(None, [])


async def _queues_at(admin: AdminClient, broker: str) -> list[MessageQueue]:
    """Return the queues at a broker of the topic that has its name: a send to a missing topic would create it.

    Raises:
        ClientError: no such broker is registered, or it has no queue that takes messages.
    """
    await admin.fetch_broker_data(broker)
    try:
        route = await admin.examine_topic_route_info(broker)
    except TopicRouteError as error:
        raise ClientError(f"broker {broker} has no topic of its name, to which the messages go") from error
    for data in route.queue_datas:
        if data.broker_name == broker and data.perm & PERM_WRITE and data.write_queue_nums > 0:
            return [MessageQueue(broker, broker, queue_id) for queue_id in range(data.write_queue_nums)]
    raise ClientError(f"topic {broker} has no queue at the broker of its name that takes messages")


def _send_row(took_ms: float, result: SendResult) -> SendRow:
    queue = result.message_queue
    return SendRow(
        round(took_ms),
        result.send_status.name,
        result.msg_id,
        result.offset_msg_id,
        queue.broker_name,
        queue.queue_id,
        result.queue_offset,
    )


def _body(size: int) -> bytes:
    """Return whole greetings of at least ``size`` bytes in all."""
    return _BODY * -(-size // len(_BODY))


async def _timed(
    send: Callable[[Message, MessageQueue], Awaitable[SendResult]], message: Message, queue: MessageQueue
) -> tuple[float, SendResult]:
    start = time.perf_counter()
    result = await send(message, queue)
    return (time.perf_counter() - start) * 1000, result


def send_result_text(result: SendResult) -> str:
    """Return an answer to a send as RocketMQ's tools print it (SendResult.toString)."""
    queue = result.message_queue
    return (
        f"SendResult [sendStatus={result.send_status.name}, msgId={result.msg_id}, "
        f"offsetMsgId={result.offset_msg_id}, messageQueue=MessageQueue [topic={queue.topic}, "
        f"brokerName={queue.broker_name}, queueId={queue.queue_id}], queueOffset={result.queue_offset}, "
        f"recallHandle={java_text(result.recall_handle)}]"
    )


class RoundTripRow(msgspec.Struct, rename="camel"):
    """Sends to one broker: their mean time in ms without the first, which fetches the route, and how many came in."""

    cluster_name: str
    broker_name: str
    rt: float
    success_count: int
    fail_count: int
    error: str | None = None


@sub_command("clusterRT", "Send messages to each broker and show the mean time.", repeats=True)
async def cluster_rt(
    admin: AdminClient,
    amount: Annotated[
        int, typer.Option("-a", "--amount", min=2, max=1_000_000, metavar="COUNT", help="Messages for each broker.")
    ] = 100,
    size: Annotated[
        int, typer.Option("-s", "--size", min=1, max=_MAX_SIZE, metavar="BYTES", help="Size of a message.")
    ] = 128,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", metavar="CLUSTER", help="Send to this cluster only.")
    ] = None,
    print_log: Annotated[
        TrueFalse, typer.Option("-p", "--printLog", help="Print one line for each broker, joined by |.")
    ] = TrueFalse.false,
    machine_room: Annotated[
        str, typer.Option("-m", "--machineRoom", metavar="NAME", help="Name of this place, for -p.")
    ] = "noname",
    as_json: bool = False,
) -> Report:
    """Send messages to each broker, to the topic that has its name, and show the mean time.

    Ctrl-C shows the brokers so far.
    """
    info = await admin.examine_broker_cluster_info()
    names = sorted(info.cluster_addr_table) if cluster is None else [cluster]
    rows: list[RoundTripRow] = []
    try:
        async with Producer("PID_clusterRT", admin.config) as producer:
            for row in [RoundTripRow(name, broker, 0.0, 0, 0) for name in names for broker in brokers_of(info, name)]:
                rows.append(row)
                await _round_trips(admin, producer, row, amount, b"a" * size)
    except asyncio.CancelledError:
        print_report(_cluster_report(rows, machine_room, as_lines=print_log.is_true), as_json=as_json)
        raise
    return _cluster_report(rows, machine_room, as_lines=print_log.is_true)


def _cluster_report(rows: list[RoundTripRow], machine_room: str, *, as_lines: bool) -> Report:
    now = human_seconds(SystemClock().time_ms())
    columns = [
        Column("#Cluster Name"),
        Column("#Broker Name"),
        *(Column(title, True) for title in ("#RT", "#successCount", "#failCount")),
    ]
    cells = [
        [row.cluster_name, row.broker_name, f"{row.rt:.2f}", str(row.success_count), str(row.fail_count)]
        for row in rows
    ]
    log_lines = [f"{now}|{machine_room}|{row.cluster_name}|{row.broker_name}|{row.rt:.0f}" for row in rows]
    parts = log_lines if as_lines else [Table(columns, cells)]
    failures = [f"{row.broker_name}: {row.fail_count} sends failed; {row.error}" for row in rows if row.error]
    return Report({"machineRoom": machine_room, "brokers": rows}, parts, failures)


async def _round_trips(admin: AdminClient, producer: Producer, row: RoundTripRow, amount: int, body: bytes) -> None:
    """Send messages to the broker of a row, which has the figures so far after each."""
    try:
        queues = await _queues_at(admin, row.broker_name)
    except RocketBrokerError as error:
        row.fail_count, row.error = amount, with_hint(error)
        return
    spent_ms = 0.0
    for number, queue in zip(range(amount), cycle(queues), strict=False):
        start = time.perf_counter()
        try:
            await producer.send(Message(row.broker_name, body), queue)
            row.success_count += 1
        except RocketBrokerError as error:
            row.fail_count += 1
            row.error = with_hint(error)
        if number:
            spent_ms += (time.perf_counter() - start) * 1000
            row.rt = spent_ms / number
