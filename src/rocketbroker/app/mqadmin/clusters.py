"""Sub-commands about clusters (org.apache.rocketmq.tools.command.cluster)."""

import asyncio
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, sub_command, with_hint
from rocketbroker.app.terminal import Column, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.cluster_admin import brokers_of
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RocketBrokerError

_MS_PER_HOUR = 3_600_000


class BrokerRow(msgspec.Struct, rename="camel"):
    """One broker process: its runtime statistics as text, or the error that kept it from answering."""

    cluster_name: str
    broker_name: str
    broker_id: int
    addr: str
    runtime: dict[str, str]
    error: str | None = None


@sub_command("clusterList", repeats=True, reads=True)
async def cluster_list(
    admin: AdminClient,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="List this cluster only.")
    ] = None,
    more_stats: Annotated[
        bool, typer.Option("-m", "--moreStats", help="Show message totals of yesterday and today.")
    ] = False,
) -> Report:
    """List clusters and their brokers."""
    info = await admin.examine_broker_cluster_info()
    found = [
        (cluster, name, broker_id, address)
        for cluster in (sorted(info.cluster_addr_table) if cluster_name is None else [cluster_name])
        for name in brokers_of(info, cluster)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]
    rows = await asyncio.gather(*(_broker_row(admin, *each) for each in found))
    table = more_table(rows) if more_stats else base_table(rows, SystemClock().time_ms())
    return Report({"brokers": rows}, [table], [f"{row.addr}: {row.error}" for row in rows if row.error])


async def _broker_row(admin: AdminClient, cluster: str, name: str, broker_id: int, address: str) -> BrokerRow:
    row = BrokerRow(cluster, name, broker_id, address, {})
    try:
        row.runtime = await admin.fetch_broker_runtime_stats(address)
    except RocketBrokerError as error:
        row.error = with_hint(error)
    return row


def base_table(rows: Sequence[BrokerRow], now_ms: int) -> Table:
    """Return version, rates and state of each broker, with dashes for missing values."""
    columns = [
        *map(Column, ("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version")),
        Column("#InTPS(LOAD)", True),
        Column("#OutTPS(LOAD)", True),
        Column("#Timer(Progress)"),
        Column("#PCWait(ms)", True),
        *map(Column, ("#Hour", "#SPACE", "#ACTIVATED")),
    ]
    return Table(columns, [_base_cells(row, now_ms) for row in rows])


def _base_cells(row: BrokerRow, now_ms: int) -> list[str]:
    def value(name: str) -> str:
        return row.runtime.get(name, "-")

    def load(kind: str) -> str:
        return f"{value(f'{kind}ThreadPoolQueueSize')},{value(f'{kind}ThreadPoolQueueHeadWaitTimeMills')}ms"

    earliest = first_number(row.runtime, "earliestMessageTimeStamp")
    space = first_number(row.runtime, "commitLogDiskRatio")
    return [
        row.cluster_name,
        row.broker_name,
        str(row.broker_id),
        row.addr,
        value("brokerVersionDesc"),
        f"{_newest_rate(row, 'putTps')}({load('send')})",
        f"{_newest_rate(row, 'getTransferredTps')}({load('pull')}|{load('ack')})",
        _timer(row.runtime),
        value("pageCacheLockTimeMills"),
        "-" if earliest is None or earliest < 0 else f"{(now_ms - earliest) / _MS_PER_HOUR:.2f}",
        "-" if space is None else f"{space:.4f}",
        value("brokerActive"),
    ]


def first_number(runtime: Mapping[str, str], name: str) -> float | None:
    """Return the first number of a value, or None if it is missing or not a number.

    Rates come as three numbers, over 10 s, 1 min and 10 min.
    """
    try:
        number = float(runtime.get(name, "").split()[0])
    except (ValueError, IndexError):
        return None
    return number if isfinite(number) else None


def _newest_rate(row: BrokerRow, name: str) -> str:
    rate = first_number(row.runtime, name)
    return "-" if rate is None else f"{rate:.2f}"


def _timer(runtime: dict[str, str]) -> str:
    names = ("timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps")
    values = [value for value in (first_number(runtime, name) for name in names) if value is not None]
    if len(values) < len(names):
        return "-"
    read, offset, congested, enqueued, dequeued = values
    return f"{read:.0f}-{offset:.0f}({congested / 10000:.1f}w, {enqueued:.1f}, {dequeued:.1f})"


def more_table(rows: Sequence[BrokerRow]) -> Table:
    """Return messages in and out of each broker, yesterday and today, with dashes for missing values."""
    titles = ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    columns = [Column("#Cluster Name"), Column("#Broker Name"), *(Column(title, True) for title in titles)]
    spans = [
        ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning"),
        ("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
        ("msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
        ("msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
    ]
    return Table(
        columns, [[row.cluster_name, row.broker_name, *(_growth(row.runtime, *span) for span in spans)] for row in rows]
    )


def _growth(runtime: dict[str, str], start: str, end: str) -> str:
    before, after = first_number(runtime, start), first_number(runtime, end)
    return "-" if before is None or after is None else f"{after - before:.0f}"
