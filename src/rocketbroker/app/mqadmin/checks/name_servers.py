"""Checks of the name servers, and of the brokers that are registered at them."""

import ipaddress
from collections.abc import Iterator

from rocketbroker.app.mqadmin.checks.cluster_facts import ClusterFacts
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.bodies.topic_config import LOGICAL_QUEUE_MOCK_BROKER_PREFIX


def name_servers(facts: ClusterFacts) -> Iterator[Finding]:
    """Find name servers that do not answer, and brokers that are not registered at all of them."""
    for server in facts.name_servers:
        if server.error:
            yield Finding(
                "nameServer",
                Severity.ERROR,
                f"name server {server.address}",
                f"does not answer: {server.error}",
                f"start it, or remove {server.address} from namesrvAddr of brokers and clients",
            )
    alive = [server for server in facts.name_servers if not server.error]
    for broker in facts.brokers:
        for server in alive:
            data = server.clusters.broker_addr_table.get(broker.name)
            if data is None or data.broker_addrs.get(broker.broker_id) != broker.address:
                yield Finding(
                    "nameServer",
                    Severity.ERROR,
                    f"broker {broker.label}",
                    f"is not registered at name server {server.address}, but at another one: clients of "
                    f"{server.address} cannot see it",
                    f"set namesrvAddr={facts.all_name_servers} in its configuration, and restart it",
                )


def missing_brokers(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers that no name server has any more, and that a slave, a client or the file of clusters still knows.

    A name server forgets a broker whose connection has ended, so a killed broker is in no table of it.
    """
    registered = {broker.name: broker for broker in reversed(facts.brokers)}
    masters = {broker.name for broker in facts.brokers if broker.broker_id == MASTER_ID}
    known_by: dict[str, str] = {}
    for group in facts.groups:
        for client, info in sorted(group.running.items()):
            for queue in sorted(info.mq_table):
                if queue.broker_name.startswith(LOGICAL_QUEUE_MOCK_BROKER_PREFIX):
                    continue
                known_by.setdefault(queue.broker_name, f"client {client} of group {group.name} still has its queues")
    known_by |= dict.fromkeys(facts.expected, "the file of clusters names it")
    for name, source in sorted(known_by.items()):
        if name not in registered:
            yield Finding(
                "missingBroker",
                Severity.ERROR,
                f"broker {name}",
                f"is registered at no name server, though {source}",
                "start it, or look in its log why it cannot register",
            )
    for name in sorted(registered.keys() - masters):
        yield Finding(
            "missingBroker",
            Severity.ERROR,
            f"broker {name}",
            f"its slave {registered[name].address} is registered, and no master: nothing can be sent to it",
            f"start the master of {name}, or look in its log why it cannot register",
        )


def advertised_addresses(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers whose advertised address cannot be reached from here, or from other machines."""
    for broker in facts.brokers:
        host, _, port = broker.address.rpartition(":")
        if broker.error and broker.accepts:
            yield Finding(
                "advertisedAddress",
                Severity.ERROR,
                f"broker {broker.label}",
                f"accepts connections at {broker.address}, but does not answer: {broker.error}",
                "its process hangs or is overloaded: look at its log, and restart it",
            )
        elif broker.error:
            yield Finding(
                "advertisedAddress",
                Severity.ERROR,
                f"broker {broker.label}",
                f"advertises {broker.address}, which does not answer here: {broker.error}",
                "start it; if it runs, set brokerIP1 to an address that clients reach and restart it; try: "
                f"nc -vz {host} {port}",
            )
        elif _is_loopback(host) and not all(_is_loopback(s.address.rpartition(":")[0]) for s in facts.name_servers):
            yield Finding(
                "advertisedAddress",
                Severity.ERROR,
                f"broker {broker.label}",
                f"advertises {broker.address}, which other machines cannot reach",
                "set brokerIP1 in its configuration to the address of the machine, and restart it",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
