"""``mqadmin doctor``: what is wrong with a cluster, with evidence and a remedy. RocketMQ has no such command.

Each check is a function from the facts of the cluster to findings. To add one, write it in the module of its subject in
``checks/``, and enter it in ``CHECKS``. A fact that it needs is fetched in ``checks/cluster_facts.py``.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Final

import typer

from rocketbroker.app.mqadmin.checks.brokers import clocks, disks, limits, replicas, stores
from rocketbroker.app.mqadmin.checks.certificate_probe import look_at_certificates
from rocketbroker.app.mqadmin.checks.certificates import certificates, plain_text
from rocketbroker.app.mqadmin.checks.cluster_facts import ClusterFacts, collect
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.app.mqadmin.checks.groups import members_at_other_name_servers, subscriptions, unowned_queues
from rocketbroker.app.mqadmin.checks.name_servers import advertised_addresses, missing_brokers, name_servers
from rocketbroker.app.mqadmin.checks.topics import routes
from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.remedies import counted
from rocketbroker.app.terminal import prose
from rocketbroker.client.admin.admin_client import AdminClient


@sub_command("doctor", "Find what is wrong with a cluster, and what to do about it.", reads=True)
async def doctor(
    admin: AdminClient,
    group: Annotated[
        str | None, typer.Option("-g", "--group", metavar="GROUP", help="Look at this consumer group only.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Explain why this topic has no route.")
    ] = None,
    severity: Annotated[
        Severity, typer.Option("--severity", help="Least severity of the findings to name and to fail for.")
    ] = Severity.WARNING,
) -> Report:
    """Compare what name servers, brokers and clients say, and name each fault with its evidence and a remedy."""
    facts = await collect(admin, group, topic)
    await look_at_certificates(admin, facts)
    findings = [found for found in examine(facts) if severity in {Severity.WARNING, found.severity}]
    data = {"findings": findings, "unknown": facts.unknown}
    lines = [
        line
        for found in findings
        for line in (
            prose(f"{found.severity.value.upper()} {found.subject}: {found.evidence}"),
            prose(found.remedy, "    "),
            "",
        )
    ]
    servers, brokers = counted(len(facts.name_servers), "name server"), counted(len(facts.brokers), "broker")
    asked = f"{servers}, {brokers} and {counted(len(facts.groups), 'group')}"
    faults = counted(len(findings), "fault")
    lines.append(prose(f"{faults if findings else 'no faults'} found; asked {asked}"))
    lines += [prose(f"not known: {each}") for each in facts.unknown]
    failures = [f"{faults} found"] if findings else []
    return Report(data, lines, failures)


def examine(facts: ClusterFacts) -> list[Finding]:
    """Return what all checks find, errors first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


#: Checks, in the order of their findings.
CHECKS: Final[list[Callable[[ClusterFacts], Iterable[Finding]]]] = [
    name_servers,
    missing_brokers,
    advertised_addresses,
    routes,
    subscriptions,
    unowned_queues,
    members_at_other_name_servers,
    disks,
    stores,
    replicas,
    clocks,
    limits,
    certificates,
    plain_text,
]
