"""Sub-commands about single brokers (org.apache.rocketmq.tools.command.broker and command.ha)."""

from collections.abc import Iterator

import msgspec

from rocketbroker.app.mqadmin.command import (
    BrokerAddr,
    Cluster,
    Report,
    chosen_brokers,
    on_brokers,
    sub_command,
    with_hint,
)
from rocketbroker.app.terminal import Column, Table
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.offset import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rocketbroker.common.errors import RocketBrokerError


class BrokerRow(msgspec.Struct, rename="camel"):
    """Replication of one broker, or the error that kept it from answering."""

    addr: str
    status: HARuntimeInfo | None = None
    error: str | None = None


@sub_command("haStatus", "Show the replication of masters and slaves.", repeats=True, reads=True)
async def ha_status(admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None) -> Report:
    """Show the slaves of masters, and how slaves follow their master."""
    rows = []
    for address in await chosen_brokers(admin, broker_addr, cluster):
        row = BrokerRow(address)
        rows.append(row)
        try:
            row.status = await admin.get_broker_ha_status(address)
        except RocketBrokerError as error:
            row.error = with_hint(error)
    parts = [part for row in rows if row.status is not None for part in _parts(row.addr, row.status)]
    return Report({"brokers": rows}, parts, [f"{row.addr}: {row.error}" for row in rows if row.error])


def _parts(address: str, status: HARuntimeInfo) -> Iterator[str | Table]:
    if not status.master:
        yield from _slave_lines(address, status.ha_client_runtime_info)
        return
    slaves = status.ha_connection_info
    yield f"#MasterAddr  {address}"
    yield f"#MasterCommitLogMaxOffset  {status.master_commit_log_max_offset}"
    yield f"#SlaveNum  {len(slaves)}"
    yield f"#InSyncSlaveNum  {status.in_sync_slave_nums}"
    if slaves:
        yield Table(_COLUMNS, [_slave_cells(slave) for slave in slaves])
    yield ""


_COLUMNS = (
    Column("#SlaveAddr"),
    Column("#SlaveAckOffset", True),
    Column("#Diff", True),
    Column("#TransferSpeed(KB/s)", True),
    Column("#Status"),
    Column("#TransferFromWhere", True),
)


def _slave_cells(slave: HAConnectionRuntimeInfo) -> list[str]:
    return [
        slave.addr,
        str(slave.slave_ack_offset),
        str(slave.diff),
        _speed(slave.transferred_byte_in_second),
        "OK" if slave.in_sync else "Fall Behind",
        str(slave.transfer_from_where),
    ]


def _slave_lines(address: str, copying: HAClientRuntimeInfo) -> Iterator[str]:
    yield f"#SlaveAddr  {address}"
    yield f"#MasterAddr  {copying.master_addr or '-'}"
    yield f"#CommitLogMaxOffset  {copying.max_offset}"
    yield f"#TransferSpeed(KB/s)  {_speed(copying.transferred_byte_in_second)}"
    yield f"#LastReadTime  {human_millis(copying.last_read_timestamp) or '-'}"
    yield f"#LastWriteTime  {human_millis(copying.last_write_timestamp) or '-'}"
    yield f"#MasterFlushOffset  {copying.master_flush_offset}"
    yield ""


def _speed(bytes_per_s: int) -> str:
    return f"{bytes_per_s / 1024:.2f}"


@sub_command("cleanExpiredCQ", dry_run=True)
async def clean_expired_cq(admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None) -> Report:
    """Remove queue and index files of deleted messages."""
    return await on_brokers(admin, broker_addr, cluster, AdminClient.clean_expired_consumer_queue)


@sub_command("cleanUnusedTopic", dry_run=True)
async def clean_unused_topic(admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None) -> Report:
    """Remove the queues of deleted topics."""
    return await on_brokers(admin, broker_addr, cluster, AdminClient.clean_unused_topic)


@sub_command("deleteExpiredCommitLog", dry_run=True)
async def delete_expired_commit_log(
    admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None
) -> Report:
    """Remove expired commit log files now."""
    return await on_brokers(admin, broker_addr, cluster, AdminClient.delete_expired_commit_log)
