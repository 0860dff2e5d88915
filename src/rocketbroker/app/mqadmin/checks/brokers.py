"""Checks of brokers: disks, replication, clocks and limits of the system."""

import re
from collections.abc import Iterator
from typing import Final

from rocketbroker.app.mqadmin.checks.cluster_facts import BrokerFacts, ClusterFacts
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.app.mqadmin.remedies import counted, mqadmin
from rocketbroker.codec.remoting.bodies.offset import HARuntimeInfo
from rocketbroker.codec.remoting.bodies.route import MASTER_ID

# Clocks further apart than this make delayed messages, retention and traces wrong. Uptimes are exact to 1 s.
_SKEW_MS: Final = 10_000
# Default of fileReservedTime in hours.
_RESERVED_HOURS: Final = 72
_NEAR: Final = 0.05
# Share of a limit of the system from which it is near.
_NEAR_LIMIT: Final = 0.8
_MAX_GAP: Final = 256 << 20
# Begins a condition in the runtime key notReady.
_CONDITION: Final = re.compile(r"(?:^|; )(store|disk|registered|replica): ")


def disks(facts: ClusterFacts) -> Iterator[Finding]:
    """Find disks near or above the watermarks of their brokers."""
    for broker in facts.brokers:
        ratio = _number(broker.runtime.get("commitLogDiskRatio"))
        if ratio is None:
            continue
        expires = _ratio(broker, "diskMaxUsedSpaceRatio", 75)
        forced = _ratio(broker, "diskSpaceCleanForciblyRatio", 85)
        rejects = _ratio(broker, "diskSpaceWarningLevelRatio", 90)
        if ratio < min(expires, forced, rejects - _NEAR):
            continue
        is_forced = broker.settings.get("cleanFileForciblyEnable", "true") == "true"
        used = f"its disk is {ratio:.0%} full: "
        if ratio >= rejects:
            used += f"above {rejects:.0%} it rejects sends"
        elif ratio >= forced and is_forced:
            used += f"above {forced:.0%} it removes messages before fileReservedTime has passed"
        else:
            used += f"above {expires:.0%} it removes expired files at once and not only at deleteWhen"
            used += f", above {forced:.0%} others too" if is_forced else ""
            used += f", and above {rejects:.0%} it rejects sends"
        hours = int(_number(broker.settings.get("fileReservedTime")) or _RESERVED_HOURS)
        less = max(1, hours // 2)
        keep = mqadmin("updateBrokerConfig", "-b", broker.address, "-k", "fileReservedTime", "-v", less)
        delete = mqadmin("deleteExpiredCommitLog", "-b", broker.address)
        remedy = "give it a larger disk"
        if less < hours:
            remedy += f"; or keep messages for {less} h in place of {hours} h, which removes all older ones: {keep}; "
            remedy += f"then: {delete}"
        severity = Severity.ERROR if ratio >= rejects else Severity.WARNING
        yield Finding("disk", severity, f"broker {broker.label}", used, remedy)


def _ratio(broker: BrokerFacts, setting: str, percent: int) -> float:
    return (_number(broker.settings.get(setting)) or percent) / 100


def replicas(facts: ClusterFacts) -> Iterator[Finding]:
    """Find slaves that are behind or not connected."""
    for broker in facts.brokers:
        if problem := broker.runtime.get("replicationProblem"):
            yield Finding(
                "replica",
                Severity.ERROR,
                f"broker {broker.label}",
                f"does not follow its master: {problem}",
                f"correct what it names; then see: {mqadmin('haStatus', '-b', broker.address)}",
            )
        if broker.replication is None or not broker.replication.master or broker.broker_id != MASTER_ID:
            continue
        status = broker.replication
        gap = int(_number(broker.settings.get("haMaxGapNotInSync")) or _MAX_GAP)
        for slave in status.ha_connection_info:
            if slave.diff >= gap or not slave.in_sync:
                yield Finding(
                    "replica",
                    Severity.ERROR,
                    f"broker {broker.label}",
                    f"its slave {slave.addr} is {slave.diff:,} bytes behind (in sync below {gap:,}), at "
                    f"{slave.transferred_byte_in_second:,} bytes a second",
                    mqadmin("haStatus", "-b", broker.address, "--watch", 2),
                )
        registered = [s for s in facts.brokers if s.name == broker.name and s.broker_id != MASTER_ID]
        if len(status.ha_connection_info) < len(registered):
            names = ", ".join(each.address for each in registered)
            yield Finding(
                "replica",
                Severity.ERROR,
                f"broker {broker.label}",
                f"of {counted(len(registered), 'registered slave')} ({names}), "
                f"{len(status.ha_connection_info)} copy its log",
                "check haMasterAddress of the slave and haListenPort of the master: "
                + mqadmin("haStatus", "-b", registered[0].address),
            )
        else:
            yield from _missing_slaves(broker, status, registered)


def _missing_slaves(broker: BrokerFacts, status: HARuntimeInfo, registered: list[BrokerFacts]) -> Iterator[Finding]:
    """Find slaves that no name server has any more: the master waits for them, or sends them its log."""
    copying = len(status.ha_connection_info)
    see = mqadmin("haStatus", "-b", broker.address)
    if copying > len(registered):
        peers = ", ".join(each.addr for each in status.ha_connection_info)
        yield Finding(
            "replica",
            Severity.WARNING,
            f"broker {broker.label}",
            f"{_copying(copying)} ({peers}), and the name servers know {len(registered)} of them: "
            "clients cannot read from the others",
            f"set namesrvAddr of the slaves to that of their master, and restart them; see: {see}",
        )
    if broker.settings.get("brokerRole") != "SYNC_MASTER":
        return
    setting = "inSyncReplicas"
    if broker.settings.get("enableAutoInSyncReplicas") == "true":
        setting = "minInSyncReplicas"
    needed = int(_number(broker.settings.get(setting)) or 1) - 1
    if copying < needed:
        yield Finding(
            "replica",
            Severity.ERROR,
            f"broker {broker.label}",
            f"waits for {counted(needed, 'slave')} with each message ({setting}={needed + 1}), and {_copying(copying)}",
            f"start its slaves; see: {see}",
        )
    elif not copying:
        yield Finding(
            "replica",
            Severity.WARNING,
            f"broker {broker.label}",
            f"is a SYNC_MASTER, and {_copying(copying)}: each message is on this machine alone",
            f"start its slave; see: {see}",
        )


def _copying(slaves: int) -> str:
    return f"{counted(slaves, 'slave') if slaves else 'no slave'} {'copy' if slaves > 1 else 'copies'} its log"


def stores(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers whose store rejects messages; only this project's brokers report it.

    Their other reasons not to be ready are found by other checks.
    """
    for broker in facts.brokers:
        reasons = _CONDITION.split(broker.runtime.get("notReady", ""))
        for name, reason in zip(reasons[1::2], reasons[2::2], strict=True):
            if name == "store":
                yield Finding(
                    "store",
                    Severity.ERROR,
                    f"broker {broker.label}",
                    f"its store takes no message: {reason}",
                    "correct what it names, and restart it; its log has the cause",
                )


def clocks(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers whose clock differs from that of this machine."""
    for broker in facts.brokers:
        if broker.skew_ms is not None and abs(broker.skew_ms) >= _SKEW_MS:
            side = "ahead of" if broker.skew_ms > 0 else "behind"
            yield Finding(
                "clock",
                Severity.WARNING,
                f"broker {broker.label}",
                f"its clock is {abs(broker.skew_ms) / 1000:.0f} s {side} that of this machine: delays, retention and "
                "resets by time are off by as much",
                "synchronise the clocks: timedatectl set-ntp true (then: timedatectl timesync-status)",
            )


def limits(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers near a limit of the system; only this project's brokers report them."""
    kinds = (
        ("openFiles", "open files", "raise LimitNOFILE of the service (systemctl edit mqbroker), and restart it"),
        ("mappedFiles", "mapped files", "sysctl -w vm.max_map_count=1048576"),
    )
    for broker in facts.brokers:
        for key, what, remedy in kinds:
            used, most = _number(broker.runtime.get(key)), _number(broker.runtime.get(f"{key}Limit"))
            if used is not None and most and used >= most * _NEAR_LIMIT:
                yield Finding(
                    "limit",
                    Severity.WARNING,
                    f"broker {broker.label}",
                    f"{used:,.0f} {what} of at most {most:,.0f}",
                    remedy,
                )


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
