"""Sub-commands that send messages (org.apache.rocketmq.tools.command.message)."""

import time
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, Topic, TrueFalse, sub_command, with_hint
from rocketbroker.app.terminal import Column, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.message import Message
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import RocketBrokerError

_GROUP = "mqadmin"
_MOST_BYTES = 128 * 1024 * 1024


class SendRow(msgspec.Struct, rename="camel"):
    """A message that was sent."""

    broker_name: str
    queue_id: int
    send_result: str
    msg_id: str
    offset_msg_id: str
    queue_offset: int


@sub_command("sendMessage", "Send a message.")
async def send_message(
    admin: AdminClient,
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", metavar="TEXT", help="Body, sent in UTF-8.")],
    key: Annotated[str, typer.Option("-k", "--key", metavar="KEYS", help="Keys, several joined by blanks.")] = "",
    tags: Annotated[str, typer.Option("-c", "--tags", metavar="TAG", help="Tag.")] = "",
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="NAME", help="Name of the broker to send to.")
    ] = None,
    qid: Annotated[
        int | None, typer.Option("-i", "--qid", min=0, metavar="ID", help="Queue to send to; needs -b.")
    ] = None,
    msg_trace_enable: Annotated[
        TrueFalse, typer.Option("-m", "--msgTraceEnable", help="Send a trace of the message.")
    ] = TrueFalse.false,
) -> Report:
    """Send one message to a topic, to a queue of the tool's choice or to a given one (-b, -i)."""
    if qid is not None and broker is None:
        raise typer.BadParameter("-i (queue) needs -b (the name of its broker)")
    config = msgspec.structs.replace(admin.config, enable_trace=msg_trace_enable.is_true)
    queue = MessageQueue(topic, broker, qid or 0) if broker is not None else None
    async with Producer(_GROUP, config) as producer:
        result = await producer.send(Message(topic, body.encode(), tags=tags or None, keys=key or None), queue)
    row = SendRow(
        result.message_queue.broker_name,
        result.message_queue.queue_id,
        result.send_status.name,
        result.msg_id,
        result.offset_msg_id,
        result.queue_offset,
    )
    titles = ("#Broker Name", "#QID", "#Send Result", "#MsgId")
    cells = [[row.broker_name, str(row.queue_id), row.send_result, row.msg_id]]
    return Report(row, [Table([*map(Column, titles)], cells)])


class RoundTrip(msgspec.Struct, rename="camel"):
    """A send of the check: ``rt`` in ms; ``error`` if it failed."""

    broker_name: str
    queue_id: int
    send_result: bool
    rt: int
    error: str | None = None


@sub_command("checkMsgSendRT", "Measure how long sends take.")
async def check_msg_send_rt(
    admin: AdminClient,
    topic: Topic,
    amount: Annotated[int, typer.Option("-a", "--amount", min=1, metavar="COUNT", help="Number of messages.")] = 100,
    size: Annotated[
        int, typer.Option("-s", "--size", min=1, max=_MOST_BYTES, metavar="BYTES", help="Bytes of a body.")
    ] = 128,
) -> Report:
    """Send messages to the queues of a topic in turn, and show how long each took.

    The messages stay in the topic. The first send, which connects, does not count for the average.
    """
    message = Message(topic, b"a" * size)
    route = await admin.examine_topic_route_info(topic)
    rows: list[RoundTrip] = []
    async with Producer(_GROUP, admin.config, retry_times_when_send_failed=0) as producer:
        queues = [
            MessageQueue(topic, data.broker_name, number)
            for data in sorted(route.queue_datas, key=lambda each: each.broker_name)
            for number in range(data.write_queue_nums)
        ]
        if not queues:
            raise typer.BadParameter(f"topic {topic} has no queue to write to")
        for number in range(amount):
            queue, error = queues[number % len(queues)], None
            begun = time.perf_counter()
            try:
                await producer.send(message, queue)
            except RocketBrokerError as failure:
                error = with_hint(failure)
            took = round((time.perf_counter() - begun) * 1000)
            rows.append(RoundTrip(queue.broker_name, queue.queue_id, error is None, took, error))
    counted = rows[1:] or rows
    average = sum(row.rt for row in counted) / len(counted)
    titles = ("#Broker Name", "#QID", "#Send Result", "#RT")
    cells = [[row.broker_name, str(row.queue_id), str(row.send_result).lower(), str(row.rt)] for row in rows]
    failed = [row for row in rows if row.error]
    failures = [f"{len(failed)} of {amount} sends failed; the first: {failed[0].error}"] if failed else []
    data = {"topic": topic, "sends": rows, "avgRT": average}
    return Report(data, [Table([*map(Column, titles)], cells), f"Avg RT: {average:.2f}"], failures)
