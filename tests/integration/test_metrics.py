"""Metrics and health of mqbroker as a process: the page beside that of Apache's broker, and who may read it."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.metrics_script import GOLDEN, SETTINGS, TOPIC, Shape, page_after, read_page, shapes
from tests.support.other_machine import OtherMachine
from tests.support.our_servers import BOOT_LIMIT, BOOTED, OurServer, OurServers
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient

SEND_MESSAGE, TOPIC_NOT_EXIST = 10, 17
ROOT = Path(__file__).resolve().parents[2]


class Measured:
    """A broker with its page after all requests of the script."""

    def __init__(self, broker: OurServer, url: str) -> None:
        self.url = url
        with RawClient(broker.address) as client:
            fields = {
                "producerGroup": "P", "topic": "Unknown", "defaultTopic": "None", "defaultTopicQueueNums": "1",
                "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "",
                "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
            }  # fmt: skip
            assert client.ask(SEND_MESSAGE, fields, b"body").code == TOPIC_NOT_EXIST
        self.page = page_after(broker.address, f"{url}/metrics")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    servers, port = OurServers(tmp_path_factory.mktemp("measured")), free_ports()
    try:
        broker = servers.launch_broker("", None, {**SETTINGS, "metricsPromExporterPort": port})
        broker.wait_for(BOOTED, BOOT_LIMIT)
        yield Measured(broker, f"http://127.0.0.1:{port}")
    finally:
        servers.close()


def test_the_page_has_the_shape_of_apaches(measured: Measured):
    apache, ours = shapes(GOLDEN.read_text()), shapes(measured.page)

    assert set(apache) - set(ours) == set()
    different = {
        name: (shape, ours[name]) for name, shape in apache.items() if name in ours and not _fits(ours[name], shape)
    }
    assert different == {}


def _fits(ours: Shape, apache: Shape) -> bool:
    return ours._replace(labels=frozenset()) == apache._replace(labels=frozenset()) and ours.labels <= apache.labels


def test_what_rocketmq_lacks_has_our_prefix(measured: Measured):
    more = shapes(measured.page).keys() - shapes(GOLDEN.read_text()).keys()

    assert {name for name in more if not name.startswith("rocketbroker_")} == set()
    assert "rocketbroker_event_loop_longest_hold_seconds" in more


def test_the_figures_are_those_of_the_requests(measured: Measured):
    lines = [line.rpartition(" ") for line in measured.page.splitlines() if not line.startswith("#")]
    found = {sample: float(value) for sample, _, value in lines}

    def value(name: str, *labels: str) -> float:
        (match,) = [key for key in found if key.startswith(name + "{") and all(each in key for each in labels)]
        return found[match]

    topic = f'topic="{TOPIC}"'
    assert value("rocketmq_messages_in_total", topic, 'message_type="normal"') == 3
    assert value("rocketmq_messages_in_total", topic, 'message_type="fifo"') == 1
    assert value("rocketmq_messages_in_total", "RMQ_SYS_TRANS_HALF_TOPIC", 'is_system="true"') == 3
    assert value("rocketmq_messages_in_total", "SCHEDULE_TOPIC_XXXX", 'message_type="delay"') == 1
    assert value("rocketmq_messages_in_total", "rmq_sys_wheel_timer", 'message_type="delay"') == 1
    assert value("rocketmq_messages_out_total", topic, "CG_Measured") == 1
    assert value("rocketmq_messages_out_total", "MeasuredPop", 'is_retry="false"') == 3
    schedule = ('topic="SCHEDULE_TOPIC_XXXX"', 'consumer_group="SCHEDULE_CONSUMER"', 'is_system="true"')
    assert value("rocketmq_messages_out_total", *schedule) == 1
    assert value("rocketmq_pop_revive_out_message_total", 'topic="MeasuredReturn"', 'revive_message_type="CK"') == 1
    assert value("rocketmq_commit_messages_total", topic) == 1
    assert value("rocketmq_rollback_messages_total", topic) == 1
    assert value("rocketmq_half_messages", topic) == 1
    assert value("rocketmq_timer_dequeue_total", topic) == 1
    assert value("rocketmq_pop_revive_in_message_total", 'topic="MeasuredPop"', 'revive_message_type="ACK"') == 1
    assert value("rocketmq_pop_revive_retry_messages_total", 'topic="MeasuredReturn"', 'put_status="PUT_OK"') == 1
    assert value("rocketmq_producer_connections", 'language="java"', 'version="v5_5_0"') == 1
    assert value("rocketmq_consumer_connections", 'consumer_group="CG_Measured"', 'consume_mode="push"') == 1
    assert value("rocketmq_rpc_latency_milliseconds_count", "pull_message", 'is_long_polling="true"') == 1
    assert value("rocketmq_consumer_lag_messages", topic) >= 4
    lag = value("rocketbroker_consumer_queue_lag_messages", topic, 'queue_id="0"', 'is_retry="false"')
    assert lag == value("rocketmq_consumer_lag_messages", topic), "only this queue has messages"
    assert value("rocketbroker_subscription_conflicts_total") == 0
    assert value("rocketbroker_refused_requests_total", 'request_code="send_message"', "topic_not_exist") == 1


def test_the_manual_explains_each_metric(measured: Measured):
    manual = (ROOT / "docs" / "operations" / "monitor.md").read_text()

    assert [name for name in shapes(measured.page) if f"`{name}`" not in manual] == ["target_info"]


def test_the_broker_is_ready(measured: Measured):
    body = json.loads(read_page(f"{measured.url}/readyz"))

    assert body["status"] == "ok"
    assert set(body["conditions"]) == {"store", "disk", "registered", "replica"}
    assert json.loads(read_page(f"{measured.url}/healthz"))["status"] == "ok"


def test_a_broker_without_a_name_server_is_not_ready(servers: OurServers):
    port, nobody = free_ports(), f"127.0.0.1:{free_ports()}"
    broker = servers.launch_broker(nobody, None, {**SETTINGS, "metricsPromExporterPort": port})
    broker.wait_for(BOOTED, BOOT_LIMIT)

    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60)
    with refused.value as answer:
        assert answer.code == 503
        registered = json.loads(answer.read())["conditions"]["registered"]
    assert registered == {"ok": False, "reason": f"at none of {nobody}; the log says why"}


@pytest.fixture
def far_broker(tmp_path: Path, other_machine: OtherMachine) -> Iterator[tuple[OurServer, int]]:
    """A broker on all addresses, and its port of metrics; only networks of tests may read them."""
    servers, port = OurServers(tmp_path, other_machine.servers_host), free_ports()
    given: dict[str, str | int] = {**SETTINGS, "metricsPromExporterPort": port, "metricsWhiteList": "192.0.2.0/24"}
    try:
        broker = servers.launch_broker("", None, given)
        broker.wait_for(BOOTED, BOOT_LIMIT)
        yield broker, port
    finally:
        servers.close()


def test_a_scrape_from_another_machine_is_rejected(far_broker: tuple[OurServer, int], other_machine: OtherMachine):
    broker, port = far_broker
    for path, status, text in (("/metrics", 403, "metricsWhiteList"), ("/readyz", 200, '{"status": "ok"}')):
        connection = http.client.HTTPConnection(broker.host, port)
        connection.sock = other_machine.connect(broker.host, port)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == status
        assert text in answer.read().decode()
        connection.close()
    broker.wait_for("metrics: protectedMode: ")
