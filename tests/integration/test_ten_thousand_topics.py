"""Longest hold of the event loop by a page of metrics and by commands of mqadmin, on servers with 10,000 topics.

CPU time of each callback counts, so that other work of the machine does not.
"""

import asyncio
import gc
import json
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketbroker.app.server_process import spare_the_collector
from rocketbroker.testing import RocketMQServer
from tests.support.ports import LOOPBACK, free_ports
from tests.support.raw_client import RawClient, raw_frame, raw_header
from tests.support.raw_requests import consumer_data, send_fields

TOPICS = [f"Topic-{number:05}" for number in range(10_000)]
GROUPS = 20
UPDATE_TOPICS, HEART_BEAT, SEND, GET_CONSUMER_RUNNING_INFO = 18, 34, 310, 307
MOST_S = 0.05
MOST_CPU_S = 10.0  # of a command


class Holds:
    """Longest CPU time of a callback of any event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.of = ""

    @contextmanager
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > self.longest_s:
                callback = handle._callback  # type: ignore[attr-defined]
                # A task names its coroutine.
                self.longest_s, self.of = took, repr(getattr(callback, "__self__", callback))

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", timed)
            yield


def tell_states(client: RawClient) -> None:
    """Answer requests for the client's state until it is closed, as doctor waits 10 s for one that is silent."""
    while (asked := client.read()) is not None:
        if asked.header["code"] == GET_CONSUMER_RUNNING_INFO:
            answer = {**raw_header(0, opaque=asked.header["opaque"]), "flag": 1}
            client.send(raw_frame(answer, b'{"properties": {}, "mqTable": {}, "statusTable": {}}'))


@pytest.fixture(scope="module")
def page_url() -> str:
    return f"http://{LOOPBACK}:{free_ports()}/metrics"


@pytest.fixture(scope="module")
def server(page_url: str) -> Iterator[RocketMQServer]:
    """A name server and a broker: a message in each topic, and groups that want some of them by their tags."""
    port = page_url.rpartition(":")[2].partition("/")[0]
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": port,
        "maxTopicNums": "20000",
        "maxSubscriptionsPerClient": "20000",
        "registerNameServerPeriod": "60000",  # longer than a test: what is measured is not a registration
    }
    with (
        RocketMQServer(properties=settings) as server,
        socket.create_connection((LOOPBACK, int(server.broker_addr.rpartition(":")[2]))) as client_socket,
        RawClient(client_socket) as client,
    ):
        for first in range(0, len(TOPICS), 1_000):
            table = [
                {"topicName": name, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
                for name in TOPICS[first : first + 1_000]
            ]
            answer = client.ask(UPDATE_TOPICS, {}, json.dumps({"topicConfigList": table}).encode())
            assert answer.code == 0, answer.remark
        for topic in TOPICS:
            assert client.ask(SEND, send_fields(topic), b"body").code == 0
        for number in range(GROUPS):
            data = consumer_data(f"Group-{number}")
            data["subscriptionDataSet"] = [
                {"topic": topic, "subString": "A", "subVersion": 1, "expressionType": "TAG"}
                for topic in TOPICS[number::GROUPS]
            ]
            body = {"clientID": "client", "producerDataSet": [], "consumerDataSet": [data]}
            answer = client.ask(HEART_BEAT, {}, json.dumps(body).encode())
            assert answer.code == 0, answer.remark
        with ThreadPoolExecutor(1) as client_thread:
            client_thread.submit(tell_states, client)
            thresholds = gc.get_threshold()
            spare_the_collector()  # as a process that is one server; else a collection of all objects is a hold, too
            yield server
            gc.set_threshold(*thresholds)
            gc.unfreeze()
            client_socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.soak
def test_a_page_holds_no_loop_for_long(server: RocketMQServer, page_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = Holds()
    with holds.measured(monkeypatch), urllib.request.urlopen(page_url, timeout=60) as answer:
        page = answer.read().decode()

    assert page.count("rocketmq_consumer_lag_messages{") == len(TOPICS)
    assert 0 < holds.longest_s < MOST_S, holds.of


@pytest.mark.soak
@pytest.mark.parametrize(
    "words",
    [
        ["exportMetadata", "-c", "DefaultCluster", "-f", "."],
        ["exportConfigs", "-c", "DefaultCluster", "-f", "."],
        ["exportMetrics", "-c", "DefaultCluster", "-f", "."],
        ["export", TOPICS[0], "--to", "messages.jsonl"],
        ["doctor"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_holds_no_loop_for_long(
    server: RocketMQServer, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = [sys.executable, "-m", "rocketbroker.app.mqadmin.cli", *words, "-n", server.namesrv_addr]
    holds = Holds()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with holds.measured(monkeypatch):
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "not known" not in done.stdout
    # The client says that it owns no queue.
    assert done.stdout.count("no client owns") == (GROUPS if words == ["doctor"] else 0), done.stderr
    assert done.returncode == int(words == ["doctor"]), done.stderr
    assert used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime < MOST_CPU_S
    assert 0 < holds.longest_s < MOST_S, holds.of
