"""``mqadmin skipAccumulatedMessage`` (org.apache.rocketmq.tools.command.offset.SkipAccumulationSubCommand)."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.reset_report import reset_report
from rocketbroker.app.mqadmin.running import AsJson, Group, NamesrvAddr, RouteCluster, Topic, TrueFalse, run
from rocketbroker.app.terminal import Report
from rocketbroker.client.admin.admin_client import AdminClient

_TO_THE_END = -1


def command(
    group: Group,
    topic: Topic,
    namesrv_addr: NamesrvAddr = None,
    force: Annotated[
        TrueFalse,
        typer.Option("-f", "--force", help="With false, only move offsets backwards, so nothing is skipped."),
    ] = TrueFalse.true,
    cluster: RouteCluster = None,
    as_json: AsJson = False,
) -> None:
    """Move a consumer group to the end of a topic."""

    async def examine(admin: AdminClient) -> Report:
        moved = await admin.reset_offset_by_timestamp(
            topic.strip(), group.strip(), _TO_THE_END, force=force.is_true, route_topic=cluster
        )
        return reset_report(group.strip(), topic.strip(), moved)

    run(namesrv_addr, as_json, examine)
