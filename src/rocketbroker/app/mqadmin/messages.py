"""Sub-commands that find messages (org.apache.rocketmq.tools.command.message, .queue)."""

from typing import Annotated, NamedTuple

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, RouteCluster, Topic, TrueFalse, java_text, sub_command, with_hint
from rocketbroker.app.mqadmin.message_text import MessageRow, charset_named, message_lines, message_row
from rocketbroker.app.terminal import Column, Table
from rocketbroker.app.times import TIME_FORMS, human_seconds, parse_time
from rocketbroker.client.admin.admin_client import AdminClient, message_track_detail
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.errors import ClientError
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRACE_TOPIC
from rocketbroker.codec.message.trace_data import PubTrace, SubAfterTrace, decode_traces
from rocketbroker.codec.remoting.bodies.client import ConsumeMessageDirectlyResult
from rocketbroker.common.errors import RocketBrokerError

_NO_END = 2**63 - 1
_HOUR_MS = 3_600_000
_RESEND_GROUP = "ReSendMsgById"
_MOST_UNIQUE = 32
_LINE = "======================================"

Charset = Annotated[
    str, typer.Option("-f", "--bodyFormat", metavar="CHARSET", help="Charset of the body.", callback=charset_named)
]
MsgIds = Annotated[str, typer.Option("-i", "--msgId", metavar="ID[,...]", help="Offset message ids or unique ids.")]
ConsumerGroup = Annotated[
    str | None,
    typer.Option("-g", "--consumerGroup", metavar="GROUP", help="Let -d, a client of this group, consume the message."),
]
ClientId = Annotated[
    str | None, typer.Option("-d", "--clientId", metavar="CLIENT_ID", help="Client of -g that consumes the message.")
]
Begin = Annotated[
    int | None,
    typer.Option(
        "-b", "--beginTimestamp", parser=parse_time, metavar="TIME", help=f"Earliest store time: {TIME_FORMS}."
    ),
]
End = Annotated[
    int | None,
    typer.Option("-e", "--endTimestamp", parser=parse_time, metavar="TIME", help="Latest store time."),
]


class Consumed(NamedTuple):
    """A message that a client has consumed directly, and the result."""

    message: MessageExt
    result: ConsumeMessageDirectlyResult


class SentRow(msgspec.Struct, rename="camel"):
    """A message that was sent again."""

    origin_msg_id: str
    send_status: str
    msg_id: str
    offset_msg_id: str
    broker_name: str
    queue_id: int
    queue_offset: int


@sub_command("queryMsgById", "Show a message by its id.", reads=True)
async def query_msg_by_id(
    admin: AdminClient,
    topic: Topic,
    msg_id: MsgIds,
    body_format: Charset = "UTF-8",
    cluster: RouteCluster = None,
    consumer_group: ConsumerGroup = None,
    client_id: ClientId = None,
    send_message: Annotated[
        TrueFalse,
        typer.Option("-s", "--sendMessage", help="Send the message again, with a new id, in place of showing it."),
    ] = TrueFalse.false,
    unit_name: Annotated[
        str, typer.Option("-u", "--unitName", metavar="NAME", help="Unit of the producer for -s.")
    ] = "",
) -> Report:
    """Show messages by offset message id or by unique id.

    With -s they are sent again, with -g and -d a client consumes them.
    """
    ids = [part.strip() for part in msg_id.split(",") if part.strip()]
    if not ids:
        raise typer.BadParameter("-i contains no message id")
    to_client = direct_client(consumer_group, client_id)
    if to_client and send_message.is_true:
        raise typer.BadParameter("give either -s (send again) or -g and -d (let a client consume)")
    found, failures = [], []
    for each in ids:
        try:
            found.append(await admin.find_message(topic, each, cluster))
        except RocketBrokerError as error:
            failures.append(f"{each}: {error}")
    if to_client:
        return await consume_directly(admin, *to_client, found, failures)
    if send_message.is_true:
        return await _send_again(admin.config, found, failures, unit_name)
    return await shown_messages(admin, found, body_format, failures)


async def shown_messages(
    admin: AdminClient,
    messages: list[MessageExt],
    charset: str,
    failures: list[str] | None = None,
    *,
    with_offset_id: bool = True,
) -> Report:
    """Return the report of messages with the state of each in the groups of its topic.

    Args:
        admin: the client.
        messages: the messages.
        charset: charset of the bodies.
        failures: reasons of others that are not shown.
        with_offset_id: print the offset message id, which RocketMQ's queryMsgByUniqueKey leaves out.
    """
    rows: list[MessageRow] = []
    lines: list[str] = []
    for message in messages:
        tracks = await message_track_detail(admin, message)
        rows.append(message_row(message, tracks))
        fields = message_lines(message, charset)
        lines += [*fields[not with_offset_id :], "", *([str(track) for track in tracks] or ["WARN: No Consumer"])]
    return Report({"messages": rows}, lines, failures or [])


def direct_client(group: str | None, client_id: str | None) -> tuple[str, str] | None:
    """Return the group and the client that are to consume messages, None without both.

    Raises:
        typer.BadParameter: one of both is given.
    """
    if (group is None) != (client_id is None):
        raise typer.BadParameter("-g (group) and -d (client) need each other")
    return (group, client_id) if group is not None and client_id is not None else None


async def consume_directly(
    admin: AdminClient, group: str, client_id: str, messages: list[MessageExt], failures: list[str]
) -> Report:
    """Let a client consume messages, one after the other, and report its results."""
    rows, lines = [], []
    for message in messages:
        try:
            result = await admin.consume_message_directly(group, client_id, message.topic, message.offset_msg_id)
        except RocketBrokerError as error:
            failures.append(f"{message.uniq_key or message.offset_msg_id}: {with_hint(error)}")
            continue
        rows.append({"msgId": message.uniq_key or message.offset_msg_id, "result": msgspec.to_builtins(result)})
        lines.append(direct_result_text(result))
    return Report({"group": group, "clientId": client_id, "results": rows}, lines, failures)


def direct_result_text(result: ConsumeMessageDirectlyResult) -> str:
    """Return the result of a direct consumption as RocketMQ prints it."""
    fields = {
        "order": result.order,
        "autoCommit": result.auto_commit,
        "consumeResult": result.consume_result,
        "remark": result.remark,
        "spentTimeMills": result.spent_time_mills,
    }
    return f"ConsumeMessageDirectlyResult [{', '.join(f'{name}={java_text(value)}' for name, value in fields.items())}]"


async def _send_again(config: ClientConfig, messages: list[MessageExt], failures: list[str], unit: str) -> Report:
    from rocketbroker.client.producer.copied_message import copied_message
    from rocketbroker.client.producer.producer import Producer

    rows = []
    async with Producer(_RESEND_GROUP, msgspec.structs.replace(config, unit_name=unit)) as producer:
        for message in messages:
            origin = message.uniq_key or message.offset_msg_id
            try:
                copy = copied_message(message.topic, message.body, message.properties, message.flag)
                result = await producer.send(copy)
            except RocketBrokerError as error:
                failures.append(f"{origin}: {with_hint(error)}")
                continue
            queue = result.message_queue
            rows.append(
                SentRow(
                    origin,
                    result.send_status.name,
                    result.msg_id,
                    result.offset_msg_id,
                    queue.broker_name,
                    queue.queue_id,
                    result.queue_offset,
                )
            )
    lines = [
        f"prepare resend msg. originalMsgId={row.origin_msg_id} SendResult [sendStatus={row.send_status}, "
        f"msgId={row.msg_id}, offsetMsgId={row.offset_msg_id}, brokerName={row.broker_name}, "
        f"queueId={row.queue_id}, queueOffset={row.queue_offset}]"
        for row in rows
    ]
    return Report({"sent": rows}, lines, failures)


class IndexRow(msgspec.Struct, rename="camel"):
    """A message found in an index; ``index_key`` names its entry in an index in RocksDB."""

    msg_id: str
    queue_id: int
    queue_offset: int
    index_key: str
    store_timestamp: int
    offset_msg_id: str


@sub_command("queryMsgByKey", "Find messages by a key.", reads=True)
async def query_msg_by_key(
    admin: AdminClient,
    topic: Topic,
    msg_key: Annotated[str, typer.Option("-k", "--msgKey", metavar="KEY", help="Key to find.")],
    begin_timestamp: Begin = None,
    end_timestamp: End = None,
    max_num: Annotated[
        int, typer.Option("-m", "--maxNum", min=1, metavar="COUNT", help="At most so many messages of each broker.")
    ] = 64,
    cluster: RouteCluster = None,
    key_type: Annotated[
        str, typer.Option("-p", "--keyType", metavar="K|T", help="K: the key is one of KEYS; T: it is a tag.")
    ] = "K",
    last_key: Annotated[
        str | None,
        typer.Option("-l", "--lastKey", metavar="INDEX_KEY", help="Continue after this entry of an index in RocksDB."),
    ] = None,
) -> Report:
    """Find the messages of a topic with a key, by store time."""
    if key_type not in {"K", "T"}:
        raise typer.BadParameter(f"-p is {key_type!r}; give K (keys) or T (tags)")
    begin_ms, end_ms = _store_times(begin_timestamp, end_timestamp)
    found = await admin.query_message(
        topic,
        msg_key,
        index_type=key_type,
        max_num=max_num,
        begin_ms=begin_ms,
        end_ms=end_ms,
        last_key=last_key,
        route_topic=cluster,
    )
    rows = [
        IndexRow(
            message.uniq_key or message.offset_msg_id,
            message.queue_id,
            message.queue_offset,
            _index_key(message, key_type, msg_key),
            message.store_timestamp,
            message.offset_msg_id,
        )
        for message in found
    ]
    cells = [[row.msg_id, str(row.queue_id), str(row.queue_offset), row.index_key] for row in rows]
    titles = [Column("#Message ID"), Column("#QID"), Column("#Offset"), Column("#IndexKey")]
    failures = [] if rows else [f"topic {topic} has no message with the {_KINDS[key_type]} {msg_key!r} in this time"]
    return Report({"topic": topic, "key": msg_key, "messages": rows}, [Table(titles, cells)], failures)


_KINDS = {"K": "key", "T": "tag"}


def _store_times(begin_ms: int | None, end_ms: int | None, option: str = "-b") -> tuple[int, int]:
    """Return both limits, those that are not given as the widest; ``option`` names the first.

    Raises:
        typer.BadParameter: one is negative, or they are the wrong way round.
    """
    begin, end = 0 if begin_ms is None else begin_ms, _NO_END if end_ms is None else end_ms
    if begin < 0 or end < 0:
        raise typer.BadParameter(f"{option} ({begin}) and -e ({end}) are times since 1970; give none before")
    if begin > end:
        raise typer.BadParameter(f"{option} ({begin}) is after -e ({end})")
    return begin, end


def _index_key(message: MessageExt, kind: str, key: str) -> str:
    hour = message.store_timestamp // _HOUR_MS * _HOUR_MS
    own = message.uniq_key or message.offset_msg_id
    return f"{hour}@{message.topic}@{kind}@{key}@{own}@{message.commit_log_offset}"


@sub_command("queryMsgByUniqueKey", "Find messages by the id that the producer gave them.")
async def query_msg_by_unique_key(
    admin: AdminClient,
    topic: Topic,
    msg_id: Annotated[str, typer.Option("-i", "--msgId", metavar="ID", help="Unique id of the message.")],
    show_all: Annotated[
        bool, typer.Option("-a", "--showAll", help="Show all messages with this id, at most 32; otherwise the first.")
    ] = False,
    cluster: RouteCluster = None,
    consumer_group: ConsumerGroup = None,
    client_id: ClientId = None,
    start_time: Annotated[
        int | None,
        typer.Option(
            "-s", "--startTime", parser=parse_time, metavar="TIME", help=f"Earliest store time: {TIME_FORMS}."
        ),
    ] = None,
    end_time: Annotated[
        int | None, typer.Option("-e", "--endTime", parser=parse_time, metavar="TIME", help="Latest store time.")
    ] = None,
) -> Report:
    """Show the messages with a unique id; or let a client consume the first (-g, -d)."""
    to_client = direct_client(consumer_group, client_id)
    begin_ms, end_ms = _store_times(start_time, end_time, "-s")
    found = await admin.query_message(
        topic,
        msg_id,
        index_type="U",
        max_num=_MOST_UNIQUE,
        begin_ms=begin_ms,
        end_ms=end_ms,
        route_topic=cluster,
    )
    if not found:
        raise ClientError(f"topic {topic} has no message with the unique id {msg_id}")
    if to_client:
        return await consume_directly(admin, *to_client, found[:1], [])
    return await shown_messages(admin, found if show_all else found[:1], "UTF-8", with_offset_id=False)


@sub_command("queryMsgByOffset", "Show the message at an offset of a queue.", reads=True)
async def query_msg_by_offset(
    admin: AdminClient,
    topic: Topic,
    broker_name: Annotated[str, typer.Option("-b", "--brokerName", metavar="NAME", help="Name of the broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", min=0, metavar="ID", help="Id of the queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0, metavar="OFFSET", help="Offset in the queue.")],
    body_format: Charset = "UTF-8",
    route_topic: Annotated[
        str | None, typer.Option("-r", "--routeTopic", metavar="TOPIC", help="Topic whose route to use, for an LMQ.")
    ] = None,
) -> Report:
    """Show the message at an offset of a queue."""
    queue = await admin.readable_queue(topic, broker_name, queue_id, route_topic)
    message = await admin.message_at(queue, offset)
    if message is None:
        first, end = await admin.queue_min_offset(queue), await admin.queue_max_offset(queue)
        has = f"it has {first} to {end - 1}" if end > first else "it is empty"
        raise ClientError(
            f"queue {queue_id} of topic {topic} at {broker_name} has no message at offset {offset}; {has}"
        )
    return await shown_messages(admin, [message], body_format)


class TraceRow(msgspec.Struct, rename="camel"):
    """A trace of a message: its send (Pub) or its consumption (Sub); times in ms."""

    type: str
    group: str
    client_host: str
    time: int
    cost_time: int
    status: str
    topic: str | None = None
    keys: str = ""
    retry_times: int | None = None


@sub_command("queryMsgTraceById", "Show the traces of a message.", reads=True)
async def query_msg_trace_by_id(
    admin: AdminClient,
    msg_id: Annotated[str, typer.Option("-i", "--msgId", metavar="ID", help="Unique id, or a key, of the message.")],
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", metavar="TOPIC", help="Topic of the traces.")
    ] = RMQ_SYS_TRACE_TOPIC,
    begin_timestamp: Begin = None,
    end_timestamp: End = None,
    max_num: Annotated[
        int, typer.Option("-c", "--maxNum", min=1, metavar="COUNT", help="At most so many messages with traces.")
    ] = 64,
) -> Report:
    """Show the traces that producers and consumers have sent of a message."""
    begin_ms, end_ms = _store_times(begin_timestamp, end_timestamp)
    found = await admin.query_message(trace_topic, msg_id, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms)
    rows = [row for message in found for row in _traces(message, msg_id)]
    if not rows:
        raise ClientError(
            f"topic {trace_topic} has no trace of {msg_id}; clients send traces with enableMsgTrace=true (enable_trace)"
        )
    parts: list[str | Table] = []
    sent = [row for row in rows if row.type == "Pub"]
    groups = dict.fromkeys(row.group for row in rows if row.type == "Sub")
    parts += [_trace_table("#ProducerGroup", "#SendTime", [row]) for row in sent]
    for group in groups:
        consumed = [row for row in rows if row.type == "Sub" and row.group == group]
        parts.append(_trace_table("#ConsumerGroup", "#ConsumerTime", consumed))
    return Report({"msgId": msg_id, "traces": rows}, parts)


def _traces(message: MessageExt, msg_id: str) -> list[TraceRow]:
    """Return the traces of one message in a message of the trace topic."""
    host = message.born_host_text.rpartition(":")[0]
    rows = []
    for trace in decode_traces(message.body.decode("utf-8", "replace")):
        if msg_id not in trace.msg_id.split(","):
            continue
        if isinstance(trace, PubTrace):
            status = "success" if trace.success else "failed"
            rows.append(
                TraceRow("Pub", trace.group, host, trace.time_ms, trace.cost_ms, status, trace.topic, trace.keys)
            )
        elif isinstance(trace, SubAfterTrace):
            status = "success" if trace.success else "failed"
            rows.append(TraceRow("Sub", trace.group, host, trace.time_ms, trace.cost_ms, status, None, trace.keys))
    return rows


def _trace_table(group_title: str, time_title: str, rows: list[TraceRow]) -> Table:
    titles = ("#Type", group_title, "#ClientHost", time_title, "#CostTimes", "#Status")
    cells = [
        [row.type, row.group, row.client_host, human_seconds(row.time), f"{row.cost_time}ms", row.status]
        for row in rows
    ]
    return Table([*map(Column, titles)], cells)


@sub_command("queryCq", "Show entries of a consume queue.", reads=True)
async def query_cq(
    admin: AdminClient,
    topic: Topic,
    queue: Annotated[int, typer.Option("-q", "--queue", min=0, metavar="ID", help="Id of the queue.")],
    index: Annotated[int, typer.Option("-i", "--index", min=0, metavar="OFFSET", help="Offset of the first entry.")],
    count: Annotated[int, typer.Option("-c", "--count", min=1, metavar="COUNT", help="Number of entries.")] = 10,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", metavar="HOST:PORT", help="Broker to ask; by default the topic's first."),
    ] = None,
    consumer: Annotated[
        str | None, typer.Option("-g", "--consumer", metavar="GROUP", help="Show the subscription of this group too.")
    ] = None,
) -> Report:
    """Show entries of a consume queue, and the subscription of a group."""
    address = broker or (await admin.readable_queues(topic))[0].address
    body = await admin.query_consume_queue(address, topic, queue, index, count, consumer)
    lines = []
    if body.subscription_data is not None:
        shown = msgspec.json.format(msgspec.json.encode(body.subscription_data), indent=2).decode()
        lines += ["Subscription data: ", shown, _LINE]
    if body.filter_data is not None:
        lines += ["Filter data: ", body.filter_data, _LINE]
    lines += ["Queue data: ", f"max: {body.max_queue_index}, min: {body.min_queue_index}", _LINE]
    for at, entry in enumerate(body.queue_data, index):
        quoted = [
            f"{name}='{value or 'null'}'"
            for name, value in (("extendDataJson", entry.extend_data_json), ("bitMap", entry.bit_map))
        ]
        fields = [
            f"physicOffset={entry.physic_offset}",
            f"physicSize={entry.physic_size}",
            f"tagsCode={entry.tags_code}",
        ]
        fields += [*quoted, f"eval={java_text(entry.eval)}", f"msg='{entry.msg or 'null'}'"]
        lines += [f"idx: {at}", f"ConsumeQueueData{{{', '.join(fields)}}}", _LINE]
    data = {"topic": topic, "brokerAddr": address, "queueId": queue, "index": index, **msgspec.to_builtins(body)}
    return Report(data, lines)
