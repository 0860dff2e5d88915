"""Sub-commands about rates and backlogs (org.apache.rocketmq.tools.command.stats and BrokerConsumeStatsSubCommand)."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, TrueFalse, sub_command, with_hint
from rocketbroker.app.mqadmin.many import of_many
from rocketbroker.app.terminal import Column, Table
from rocketbroker.app.times import human_seconds
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.offset import BrokerStatsData
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, RocketBrokerError

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"


def sum_of_day(stats: BrokerStatsData) -> int:
    """Return the sum over a day, or over the hour or minute if the broker has not sampled longer yet.

    RocketMQ's StatsAllSubCommand.compute24HourSum.
    """
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


# -- brokerConsumeStats


class ProgressRow(msgspec.Struct, rename="camel"):
    """Progress of a group in one queue; ``last_timestamp`` is the store time of its last message in ms."""

    topic: str
    group: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    last_timestamp: int


@sub_command("brokerConsumeStats", reads=True)
async def broker_consume_stats(
    admin: AdminClient,
    broker_addr: Annotated[str, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Broker.")],
    timeout_millis: Annotated[
        int, typer.Option("-t", "--timeoutMillis", min=1, metavar="MS", help="Limit for the answer.")
    ] = 50_000,
    level: Annotated[
        int, typer.Option("-l", "--level", min=0, metavar="COUNT", help="Show queues with at least this backlog.")
    ] = 0,
    order: Annotated[TrueFalse, typer.Option("-o", "--order", help="Show ordered topics only.")] = TrueFalse.false,
) -> Report:
    """Show the progress of all groups of a broker."""
    stats = await admin.fetch_consume_stats_in_broker(
        broker_addr, is_order=order.is_true, timeout_s=timeout_millis / 1000
    )
    rows = [
        ProgressRow(
            queue.topic,
            group,
            queue.broker_name,
            queue.queue_id,
            offset.broker_offset,
            offset.consumer_offset,
            offset.broker_offset - offset.consumer_offset,
            offset.last_timestamp,
        )
        for groups in stats.consume_stats_list
        for group, by_topic in groups.items()
        for progress in by_topic
        for queue, offset in sorted(progress.offset_table.items())
        if offset.broker_offset - offset.consumer_offset >= level and offset.last_timestamp > 0
    ]
    titles = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    cells = [
        [
            *map(str, (row.topic, row.group, row.broker_name, row.queue_id)),
            *map(str, (row.broker_offset, row.consumer_offset, row.diff)),
            human_seconds(row.last_timestamp),
        ]
        for row in rows
    ]
    data = {"brokerAddr": broker_addr, "queues": rows, "diffTotal": stats.total_diff}
    return Report(data, [Table([*map(Column, titles)], cells), "", f"Diff Total: {stats.total_diff}"])


# -- statsAll


class TopicStatsRow(msgspec.Struct, rename="camel"):
    """Rates of a topic, and of a group that consumes it; of a topic without groups, ``consumer_group`` is None.

    Rates are messages a second over the last minute; sums are messages of up to 24 hours. ``accumulation`` is None if
    no broker tells it. With an error there are no figures.
    """

    topic: str
    consumer_group: str | None = None
    accumulation: int | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    in_msg_24_hour: int | None = msgspec.field(name="inMsg24Hour", default=None)
    out_msg_24_hour: int | None = msgspec.field(name="outMsg24Hour", default=None)
    error: str | None = None


@sub_command("statsAll", "Show rates of topics and of their consumers.", reads=True)
async def stats_all(
    admin: AdminClient,
    active_topic: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Show only topics with messages in or out within 24 hours.")
    ] = False,
    topic: Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Show this topic only.")] = None,
) -> Report:
    """Show rates of topics and of their consumer groups, over the last minute and 24 hours."""
    topics = await admin.fetch_all_topic_list()
    if topic is not None and topic not in topics:
        raise ClientError(f"there is no topic {topic!r}; mqadmin topicList lists the topics")
    chosen = [
        name
        for name in topics
        if topic in {None, name} and not name.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))
    ]
    found = [row for rows in await of_many(chosen, lambda name: _topic_rows(admin, name)) for row in rows]
    rows = [row for row in found if not active_topic or row.error or row.in_msg_24_hour or row.out_msg_24_hour]
    columns = [
        Column("#Topic"),
        Column("#Consumer Group"),
        *(Column(title, True) for title in ("#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")),
    ]
    failures = [f"{row.topic}: {row.error}" for row in rows if row.error]
    return Report({"topics": rows}, [Table(columns, [[*_stats_cells(row)] for row in rows])], failures)


def _stats_cells(row: TopicStatsRow) -> Iterator[str]:
    yield row.topic
    yield row.consumer_group or ""
    if row.error:
        yield from "-----"
        return
    # Apache's tool prints 0 for a group whose progress no broker tells.
    yield str(row.accumulation or 0)
    yield f"{row.in_tps:.2f}"
    yield "" if row.out_tps is None else f"{row.out_tps:.2f}"
    yield str(row.in_msg_24_hour)
    yield "NO_CONSUMER" if row.out_msg_24_hour is None else str(row.out_msg_24_hour)


async def _topic_rows(admin: AdminClient, topic: str) -> list[TopicStatsRow]:
    """Return a row for each group of a topic, one without a group, or one with an error."""
    try:
        return await _rows_of(admin, topic)
    except TopicRouteError:
        return []  # deleted since the list was fetched
    except RocketBrokerError as error:
        return [TopicStatsRow(topic, error=with_hint(error))]


async def _rows_of(admin: AdminClient, topic: str) -> list[TopicStatsRow]:
    route = await admin.examine_topic_route_info(topic)
    groups = sorted(await admin.query_topic_consume_by_who(topic))
    masters = [data.broker_addrs[MASTER_ID] for data in route.broker_datas if MASTER_ID in data.broker_addrs]
    came = await _added_up(admin, masters, TOPIC_PUT_NUMS, topic)
    if not groups:
        return [TopicStatsRow(topic, None, None, came[0], None, came[1], None)]
    rows = []
    for group in groups:
        went = await _added_up(admin, masters, GROUP_GET_NUMS, f"{topic}@{group}")
        rows.append(
            TopicStatsRow(topic, group, await _backlog(admin, group, topic), came[0], went[0], came[1], went[1])
        )
    return rows


async def _added_up(admin: AdminClient, masters: list[str], name: str, key: str) -> tuple[float, int]:
    """Return rate and sum of a counter on all masters."""
    rate, total = 0.0, 0
    for address in masters:
        stats = await counter(admin, address, name, key)
        rate += stats.stats_minute.tps
        total += sum_of_day(stats)
    return rate, total


async def counter(admin: AdminClient, address: str, name: str, key: str) -> BrokerStatsData:
    """Return a counter of a broker; one that has not counted anything yet answers SYSTEM_ERROR, and is zero."""
    try:
        return await admin.view_broker_stats_data(address, name, key)
    except BrokerResponseError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        return BrokerStatsData()


async def _backlog(admin: AdminClient, group: str, topic: str) -> int | None:
    """Return the number of messages that a group has not consumed, None if it has no progress there."""
    try:
        stats = await admin.examine_consume_stats(group, topic)
    except TopicRouteError:
        return None
    backlog = sum(offset.broker_offset - offset.consumer_offset for offset in stats.offset_table.values())
    return max(backlog, 0)
