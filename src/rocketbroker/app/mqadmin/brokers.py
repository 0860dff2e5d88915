"""Sub-commands about single brokers (org.apache.rocketmq.tools.command.broker and command.ha)."""

from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import (
    BrokerAddr,
    Cluster,
    Report,
    chosen_brokers,
    chosen_masters,
    fill_rows,
    on_brokers,
    sub_command,
)
from rocketbroker.app.terminal import Column, Table, escaped
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.offset import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo


class BrokerRow(msgspec.Struct, rename="camel"):
    """Replication of one broker, or the error that kept it from answering."""

    addr: str
    status: HARuntimeInfo | None = None
    error: str | None = None


@sub_command("haStatus", "Show the replication of masters and slaves.", repeats=True, reads=True)
async def ha_status(
    admin: AdminClient,
    broker_addr: BrokerAddr = None,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Run on all brokers of this cluster.")
    ] = None,
) -> Report:
    """Show the slaves of masters, and how slaves follow their master."""
    rows = [BrokerRow(address) for address in await chosen_brokers(admin, broker_addr, cluster_name)]

    async def ask(row: BrokerRow) -> None:
        row.status = await admin.get_broker_ha_status(row.addr)

    failures = await fill_rows(rows, ask)
    parts = [part for row in rows if row.status is not None for part in _parts(row.addr, row.status)]
    return Report({"brokers": rows}, parts, failures)


def _parts(address: str, status: HARuntimeInfo) -> Iterator[str | Table]:
    if not status.master:
        yield from _slave_lines(address, status.ha_client_runtime_info)
        return
    slaves = status.ha_connection_info
    yield f"#MasterAddr  {address}"
    yield f"#MasterCommitLogMaxOffset  {status.master_commit_log_max_offset}"
    yield f"#SlaveNum  {len(slaves)}"
    yield f"#InSyncSlaveNum  {status.in_sync_slave_nums}"
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


class StatusRow(msgspec.Struct, rename="camel"):
    """Runtime statistics of a broker as text, or the error that kept it from answering."""

    addr: str
    runtime: dict[str, str]
    error: str | None = None


@sub_command("brokerStatus", "Show the runtime statistics of brokers.", reads=True)
async def broker_status(
    admin: AdminClient,
    broker_addr: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Show this broker.")
    ] = None,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Show the masters of this cluster.")
    ] = None,
) -> Report:
    """Show the runtime statistics of a broker (-b) or of the masters of a cluster (-c)."""
    rows = [StatusRow(address, {}) for address in await chosen_masters(admin, broker_addr, cluster_name)]

    async def ask(row: StatusRow) -> None:
        row.runtime = await admin.fetch_broker_runtime_stats(row.addr)

    failures = await fill_rows(rows, ask)
    lines = [
        f"{f'{row.addr:24} ' if broker_addr is None else ''}{name:32}: {escaped(value)}"
        for row in rows
        for name, value in sorted(row.runtime.items())
    ]
    return Report({"brokers": rows}, lines, failures)


def _question(what: str) -> Callable[..., str]:
    """Return the question before something is deleted on a broker, in a cluster or everywhere."""

    def ask(broker_addr: str | None, cluster: str | None) -> str:
        where = broker_addr or (f"all brokers of cluster {cluster}" if cluster else "all brokers of all clusters")
        return f"Delete {what} on {where}?"

    return ask


@sub_command("cleanExpiredCQ", deletes=_question("queue and index files of deleted messages"), dry_run=True)
async def clean_expired_cq(admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None) -> Report:
    """Remove queue and index files of deleted messages."""
    return await on_brokers(admin, broker_addr, cluster, AdminClient.clean_expired_consumer_queue)


@sub_command("cleanUnusedTopic", deletes=_question("the queues of deleted topics"), dry_run=True)
async def clean_unused_topic(admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None) -> Report:
    """Remove the queues of deleted topics."""
    return await on_brokers(admin, broker_addr, cluster, AdminClient.clean_unused_topic)


@sub_command("deleteExpiredCommitLog", deletes=_question("expired commit log files"), dry_run=True)
async def delete_expired_commit_log(
    admin: AdminClient, broker_addr: BrokerAddr = None, cluster: Cluster = None
) -> Report:
    """Remove expired commit log files now."""
    return await on_brokers(admin, broker_addr, cluster, AdminClient.delete_expired_commit_log)
