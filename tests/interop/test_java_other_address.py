"""The official Java client with an address of another machine, at servers with their settings as they come."""

import pytest

from tests.interop.test_java_groups import produce, push
from tests.support.java import Java
from tests.support.java_lines import check_content, got
from tests.support.other_machine import OtherMachine
from tests.support.our_servers import Cluster

pytestmark = pytest.mark.java


@pytest.fixture
def clients_machine(other_machine: OtherMachine) -> OtherMachine:
    """Whatever ``--from-other-address`` says."""
    return other_machine


def test_a_remote_client_sends_and_consumes_but_may_not_administer(
    java: Java, cluster: Cluster, other_machine: OtherMachine
):
    cluster.make_topic("Elsewhere")
    consumer = push(java, cluster, "Elsewhere", "stopAfter=40")
    produce(java, cluster, "Elsewhere", "sync:40:1")
    consumer.wait_for("DONE")

    messages = got(consumer.text())
    assert sorted(each.n for each in messages) == list(range(40))
    check_content(messages)

    # Apache's own tool, there and here.
    asked = ("getBrokerConfig", "-b", cluster.broker.address)
    refused = java.mqadmin(*asked, namesrv=cluster.address, runner=other_machine.runner)
    assert "CODE: 16" in refused.stdout + refused.stderr
    assert (
        f"protectedMode: request code 26 (GET_BROKER_CONFIG) is for administration, and {other_machine.address}:"
        in (refused.stdout + refused.stderr)
    )
    allowed = java.mqadmin(*asked, namesrv=cluster.address)
    assert "protectedMode" in allowed.stdout
    assert "CODE: 16" not in allowed.stdout + allowed.stderr
