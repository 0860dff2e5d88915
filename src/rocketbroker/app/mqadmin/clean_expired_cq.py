"""``mqadmin cleanExpiredCQ`` (org.apache.rocketmq.tools.command.broker.CleanExpiredCQSubCommand)."""

from rocketbroker.app.mqadmin.on_brokers import BrokerAddr, Cluster, run_on_brokers
from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr
from rocketbroker.client.admin.admin_client import AdminClient


def command(
    namesrv_addr: NamesrvAddr = None,
    broker_addr: BrokerAddr = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Remove queue and index files of deleted messages."""
    run_on_brokers(namesrv_addr, as_json, broker_addr, cluster, AdminClient.clean_expired_consumer_queue)
