"""``mqadmin resetOffsetByTime`` (org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeCommand)."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.report import Report
from rocketbroker.app.mqadmin.reset_report import reset_report
from rocketbroker.app.mqadmin.running import AsJson, Group, NamesrvAddr, RouteCluster, Topic, TrueFalse, run
from rocketbroker.app.mqadmin.times import parse_time
from rocketbroker.client.admin_client import AdminClient
from rocketbroker.common.clock import SystemClock

_BY_TIME = -1


def command(  # noqa: PLR0913, PLR0917 - one argument for each option of RocketMQ's
    group: Group,
    topic: Topic,
    timestamp: Annotated[
        str | None, typer.Option("-s", "--timestamp", help="now, ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
    ] = None,
    namesrv_addr: NamesrvAddr = None,
    force: Annotated[
        TrueFalse, typer.Option("-f", "--force", help="false: only where the group goes back.")
    ] = TrueFalse.true,
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="Only this broker; with -q.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", min=0, help="Only this queue; with -b.")] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0, help="To this offset; with -b and -q.")] = None,
    cluster: RouteCluster = None,
    as_json: AsJson = False,
) -> None:
    """Move a consumer group to a time, or in one queue to an offset."""
    if (broker is None) != (queue is None) or (offset is not None and queue is None):
        raise typer.BadParameter("-b (a broker) and -q (one of its queues) belong together, and -o needs both")
    at, time_ms = _BY_TIME if offset is None else offset, _time_ms(timestamp, offset)

    async def examine(admin: AdminClient) -> Report:
        if broker is None or queue is None:
            moved = await admin.reset_offset_by_timestamp(
                topic.strip(), group.strip(), time_ms, force=force.is_true, route_topic=cluster
            )
        else:
            moved = await admin.reset_offset_by_queue_id(
                broker.strip(), group.strip(), topic.strip(), queue, offset=at, timestamp_ms=time_ms
            )
        return reset_report(group.strip(), topic.strip(), moved)

    run(namesrv_addr, as_json, examine)


def _time_ms(text: str | None, offset: int | None) -> int:
    if text is None and offset is not None:
        return 0
    try:
        return parse_time((text or "").strip(), SystemClock().time_ms())
    except ValueError:
        raise typer.BadParameter(
            f"the time {text!r} (-s) is none; now, ms since 1970 or yyyy-MM-dd#HH:mm:ss:SSS would be right"
        ) from None
