"""Sub-commands that send messages to measure how long brokers take (SendMsgStatusCommand, CLusterSendMsgRTCommand)."""

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, TrueFalse, java_text, sub_command
from rocketbroker.app.terminal import Column, Table
from rocketbroker.app.times import human_seconds
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import BrokerNotFoundError, ClientError, TopicRouteError
from rocketbroker.client.core.message import Message, SendResult
from rocketbroker.client.producer.producer import Producer
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
) -> Report:
    """Send messages to the topic that has the broker's name, and show the time of each."""
    try:
        await admin.examine_topic_route_info(broker_name)  # a send would create the topic of a misspelt name
    except TopicRouteError as error:
        names = ", ".join(sorted((await admin.examine_broker_cluster_info()).broker_addr_table)) or "none"
        raise BrokerNotFoundError(f"there is no topic of a broker {broker_name!r}; the brokers are {names}") from error
    rows, lines = [], []
    async with Producer("PID_SMSC", admin.config) as producer:
        await producer.send(Message(broker_name, _body(_FIRST_SIZE)))  # it fetches the route and connects
        for _ in range(count):
            took_ms, result = await _timed(lambda: producer.send(Message(broker_name, _body(message_size))))
            queue = result.message_queue
            rows.append(
                SendRow(
                    round(took_ms),
                    result.send_status.name,
                    result.msg_id,
                    result.offset_msg_id,
                    queue.broker_name,
                    queue.queue_id,
                    result.queue_offset,
                )
            )
            lines.append(f"rt={round(took_ms)}ms, SendResult={send_result_text(result)}")
    return Report({"brokerName": broker_name, "sends": rows}, lines)


def _body(size: int) -> bytes:
    """Return whole greetings of at least ``size`` bytes in all."""
    return _BODY * -(-size // len(_BODY))


async def _timed(send: Callable[[], Awaitable[SendResult]]) -> tuple[float, SendResult]:
    start = time.perf_counter()
    result = await send()
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
) -> Report:
    """Send messages to each broker, to the topic that has its name, and show the mean time."""
    clusters = (await admin.examine_broker_cluster_info()).cluster_addr_table
    if cluster is not None and cluster not in clusters:
        known = ", ".join(sorted(clusters)) or "none"
        raise ClientError(f"cluster {cluster!r} does not exist; the name server knows: {known}")
    async with Producer("PID_clusterRT", admin.config) as producer:
        rows = [
            await _round_trips(producer, name, broker, amount, b"a" * size)
            for name in (sorted(clusters) if cluster is None else [cluster])
            for broker in sorted(clusters[name])
        ]
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
    parts = log_lines if print_log.is_true else [Table(columns, cells)]
    failures = [f"{row.broker_name}: {row.fail_count} sends failed; {row.error}" for row in rows if row.error]
    return Report({"machineRoom": machine_room, "brokers": rows}, parts, failures)


async def _round_trips(producer: Producer, cluster: str, broker: str, amount: int, body: bytes) -> RoundTripRow:
    row = RoundTripRow(cluster, broker, 0.0, 0, 0)
    spent_ms = 0.0
    for number in range(amount):
        start = time.perf_counter()
        try:
            await producer.send(Message(broker, body))
            row.success_count += 1
        except RocketBrokerError as error:
            row.fail_count += 1
            row.error = str(error)
        if number:
            spent_ms += (time.perf_counter() - start) * 1000
    row.rt = spent_ms / (amount - 1)
    return row
