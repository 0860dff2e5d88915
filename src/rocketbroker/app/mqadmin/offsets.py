"""Sub-commands about the offsets of consumer groups (org.apache.rocketmq.tools.command.offset)."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Group, Report, RouteCluster, Topic, TrueFalse, sub_command
from rocketbroker.app.terminal import Column, Table
from rocketbroker.app.times import TIME_FORMS, parse_time
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.message_ext import MessageQueue

_BY_TIME = -1
_TO_THE_END = -1


class QueueOffset(msgspec.Struct, rename="camel"):
    """Offset of a group in one queue."""

    broker_name: str
    queue_id: int
    offset: int


def queue_offsets(table: Mapping[MessageQueue, int]) -> list[QueueOffset]:
    """Return the offsets in order of broker and queue."""
    return [QueueOffset(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(table.items())]


class ClientRow(msgspec.Struct, rename="camel"):
    """Offsets of one client."""

    client_id: str
    queues: list[QueueOffset]


@sub_command("getConsumerStatus", reads=True)
async def get_consumer_status(
    admin: AdminClient,
    group: Group,
    topic: Topic,
    origin_client_id: Annotated[
        str, typer.Option("-i", "--originClientId", metavar="CLIENT_ID", help="Show this client only.")
    ] = "",
) -> Report:
    """Show the offsets of a group's clients."""
    tables = await admin.get_consume_status(topic, group, origin_client_id)
    clients = [ClientRow(client_id, queue_offsets(table)) for client_id, table in sorted(tables.items())]
    cells = [
        [client.client_id, queue.broker_name, str(queue.queue_id), str(queue.offset)]
        for client in clients
        for queue in client.queues
    ]
    titles = ("#clientId", "#brokerName", "#queueId", "#offset")
    data = {"group": group, "topic": topic, "clients": clients}
    return Report(data, [Table([*map(Column, titles)], cells)])


@sub_command("resetOffsetByTime", "Move a consumer group to a time or an offset.", dry_run=True)
async def reset_offset_by_time(
    admin: AdminClient,
    group: Group,
    topic: Topic,
    timestamp: Annotated[
        int | None,
        typer.Option(
            "-s",
            "--timestamp",
            parser=parse_time,
            metavar="TIME",
            help=f"Time to move to, as {TIME_FORMS}; -1 moves to the end.",
        ),
    ] = None,
    force: Annotated[
        TrueFalse, typer.Option("-f", "--force", help="With false, only move offsets backwards.")
    ] = TrueFalse.true,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", metavar="NAME|HOST:PORT", help="Broker of the one queue to move; needs -q."),
    ] = None,
    queue: Annotated[
        int | None, typer.Option("-q", "--queue", min=0, metavar="ID", help="Id of the one queue to move; needs -b.")
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            "-o", "--offset", min=0, metavar="OFFSET", help="Offset to move to instead of a time; needs -b and -q."
        ),
    ] = None,
    cluster: RouteCluster = None,
) -> Report:
    """Move a consumer group to a time, or in one queue to an offset."""
    if (broker is None) != (queue is None) or (offset is not None and queue is None):
        raise typer.BadParameter("-b (broker) and -q (queue) need each other, and -o (offset) needs both")
    if (offset is None and timestamp is None) or (timestamp is not None and timestamp < _TO_THE_END):
        raise typer.BadParameter(
            "give a time to move to (-s), or -1 for the end, or an offset (-o) together with -b and -q"
        )
    time_ms = timestamp or 0
    if broker is None or queue is None:
        moved = await admin.reset_offset_by_timestamp(topic, group, time_ms, force=force.is_true, route_topic=cluster)
    else:
        moved = await admin.reset_offset_by_queue_id(
            await admin.fetch_broker_address(broker),
            group,
            topic,
            queue,
            offset=_BY_TIME if offset is None else offset,
            timestamp_ms=time_ms,
        )
    return reset_report(group, topic, moved)


@sub_command("skipAccumulatedMessage", dry_run=True)
async def skip_accumulated_message(
    admin: AdminClient,
    group: Group,
    topic: Topic,
    force: Annotated[
        TrueFalse,
        typer.Option("-f", "--force", help="With false, only move offsets backwards, so nothing is skipped."),
    ] = TrueFalse.true,
    cluster: RouteCluster = None,
) -> Report:
    """Move a consumer group to the end of a topic."""
    moved = await admin.reset_offset_by_timestamp(topic, group, _TO_THE_END, force=force.is_true, route_topic=cluster)
    return reset_report(group, topic, moved)


def reset_report(group: str, topic: str, table: Mapping[MessageQueue, int]) -> Report:
    """Return the report, one row for each queue with its new offset."""
    rows = queue_offsets(table)
    cells = [[row.broker_name, str(row.queue_id), str(row.offset)] for row in rows]
    titles = ("#brokerName", "#queueId", "#offset")
    return Report({"group": group, "topic": topic, "queues": rows}, [Table([*map(Column, titles)], cells)])


@sub_command("cloneGroupOffset", dry_run=True)
async def clone_group_offset(
    admin: AdminClient,
    source: Annotated[str, typer.Option("-s", "--srcGroup", metavar="GROUP", help="Consumer group to copy from.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", metavar="GROUP", help="Consumer group to copy to.")],
    topic: Topic,
    offline: Annotated[
        TrueFalse,
        typer.Option(
            "-o", "--offline", help="With false, copy nothing while -s has clients that do not subscribe to the topic."
        ),
    ] = TrueFalse.true,
) -> Report:
    """Copy the offsets of one consumer group to another."""
    await admin.clone_group_offset(source, target, topic, offline=offline.is_true)
    line = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    return Report({"srcGroup": source, "destGroup": target, "topic": topic}, [line])
