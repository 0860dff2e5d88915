"""``mqadmin resetOffsetByTime`` (org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeCommand)."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.reset_report import reset_report
from rocketbroker.app.mqadmin.running import AsJson, Group, NamesrvAddr, RouteCluster, Topic, TrueFalse, run
from rocketbroker.app.terminal import Report
from rocketbroker.app.times import TIME_FORMS, parse_time
from rocketbroker.client.admin.admin_client import AdminClient

_BY_TIME = -1


def command(  # noqa: PLR0913, PLR0917 - one argument for each option of RocketMQ's
    group: Group,
    topic: Topic,
    timestamp: Annotated[
        int | None,
        typer.Option("-s", "--timestamp", parser=parse_time, metavar="TIME", help=f"Time to move to, as {TIME_FORMS}."),
    ] = None,
    namesrv_addr: NamesrvAddr = None,
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
    as_json: AsJson = False,
) -> None:
    """Move a consumer group to a time, or in one queue to an offset."""
    if (broker is None) != (queue is None) or (offset is not None and queue is None):
        raise typer.BadParameter("-b (broker) and -q (queue) need each other, and -o (offset) needs both")
    if offset is None and (timestamp is None or timestamp < 0):
        raise typer.BadParameter("give a time to move to (-s), or an offset (-o) together with -b and -q")

    time_ms = timestamp or 0

    async def examine(admin: AdminClient) -> Report:
        if broker is None or queue is None:
            moved = await admin.reset_offset_by_timestamp(
                topic.strip(), group.strip(), time_ms, force=force.is_true, route_topic=cluster
            )
        else:
            moved = await admin.reset_offset_by_queue_id(
                await admin.fetch_broker_address(broker.strip()),
                group.strip(),
                topic.strip(),
                queue,
                offset=_BY_TIME if offset is None else offset,
                timestamp_ms=time_ms,
            )
        return reset_report(group.strip(), topic.strip(), moved)

    run(namesrv_addr, as_json, examine)
