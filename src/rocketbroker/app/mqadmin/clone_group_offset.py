"""``mqadmin cloneGroupOffset`` (org.apache.rocketmq.tools.command.offset.CloneGroupOffsetCommand)."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, Topic, TrueFalse, run
from rocketbroker.app.terminal import Report
from rocketbroker.client.admin.admin_client import AdminClient


def command(
    src_group: Annotated[str, typer.Option("-s", "--srcGroup", metavar="GROUP", help="Consumer group to copy from.")],
    dest_group: Annotated[str, typer.Option("-d", "--destGroup", metavar="GROUP", help="Consumer group to copy to.")],
    topic: Topic,
    namesrv_addr: NamesrvAddr = None,
    offline: Annotated[
        TrueFalse,
        typer.Option(
            "-o", "--offline", help="With false, copy nothing while -s has clients that do not subscribe to the topic."
        ),
    ] = TrueFalse.true,
    as_json: AsJson = False,
) -> None:
    """Copy the offsets of one consumer group to another."""
    source, target, name = src_group.strip(), dest_group.strip(), topic.strip()

    async def examine(admin: AdminClient) -> Report:
        await admin.clone_group_offset(source, target, name, offline=offline.is_true)
        line = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{name}]"
        return Report({"srcGroup": source, "destGroup": target, "topic": name}, [line])

    run(namesrv_addr, as_json, examine)
