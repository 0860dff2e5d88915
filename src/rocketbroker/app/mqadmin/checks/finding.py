"""Findings of ``mqadmin doctor``, and the words that its checks share."""

from enum import StrEnum

import msgspec

from rocketbroker.app.mqadmin.checks.cluster_facts import BrokerFacts, ClusterFacts
from rocketbroker.codec.remoting.bodies.route import MASTER_ID


class Severity(StrEnum):
    """Severity of a finding: something fails now, or will."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, rename="camel"):
    """Something wrong.

    Attributes:
        check: name of the check.
        severity: error or warning.
        subject: what it is about, such as ``broker broker-a`` or ``group G``.
        evidence: what was seen, with its values.
        remedy: a command, or what else to do.
    """

    check: str
    severity: Severity
    subject: str
    evidence: str
    remedy: str


def label(broker: BrokerFacts) -> str:
    """Return the name of a master, and name and id of a slave."""
    return broker.name if broker.broker_id == MASTER_ID else f"{broker.name} (slave {broker.broker_id})"


def all_name_servers(facts: ClusterFacts) -> str:
    """Return the addresses of all name servers as a value of namesrvAddr."""
    return ";".join(each.address for each in facts.name_servers)


def cluster_of(facts: ClusterFacts) -> str:
    """Return the name of the cluster for a command."""
    return facts.brokers[0].cluster if facts.brokers else "DefaultCluster"
