"""Failures that repeat are logged once a minute, and versions of brokers have names."""

import logging

import pytest

from rocketbroker.client.core import requests
from rocketbroker.client.core.heartbeat_sender import HeartbeatSender
from rocketbroker.client.core.requests import V5_0_0_SNAPSHOT, FailureLog, version_desc
from rocketbroker.codec.remoting.request_signature import V4_9_3
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [100.0]
    monkeypatch.setattr("rocketbroker.client.core.requests.time.monotonic", lambda: times[-1])
    return times


def test_a_cause_has_one_line_a_minute(now: list[float], caplog: pytest.LogCaptureFixture):
    failures = FailureLog(log)
    for second in range(120):
        now.append(100.0 + second)
        for queue in range(4):
            failures.warning("pulls of %s fail: %s", queue, OSError(f"no answer within {second}.5 ms"))
    assert [record.getMessage() for record in caplog.records] == [
        "pulls of 0 fail: no answer within 0.5 ms",
        "pulls of 0 fail: no answer within 60.5 ms (and 239 more since the last such line)",
    ]


@pytest.mark.usefixtures("now")
def test_other_causes_have_lines_of_their_own(caplog: pytest.LogCaptureFixture):
    failures = FailureLog(log)
    for _ in range(3):
        for text in ("pulls of %s fail: %s", "commits of %s fail: %s"):
            for port in (1, 2):
                failures.warning(text, "T", OSError(f"connect to h:{port} failed"))
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) == 4


def test_causes_do_not_pile_up(now: list[float]):
    failures = FailureLog(log)
    held = []
    for number in range(1000):
        now.append(now[-1] + 1)
        failures.warning("%s", OSError(f"cause {number}"))
        held.append(failures.cause_count)
    assert max(held) == requests.MOST_CAUSES


async def test_an_outage_leaves_few_lines(caplog: pytest.LogCaptureFixture):
    remoting = RemotingClient()
    sender = HeartbeatSender(remoting, "client", lambda _masters_only: {"127.0.0.1:1"})
    sender.register_producer("PG")
    for _ in range(20):
        await sender.greet("127.0.0.1:1")
    await remoting.stop()
    assert len([record for record in caplog.records if "heartbeat to" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (513, "V5_5_0"),
        (V4_9_3, "V4_9_3"),
        (V5_0_0_SNAPSHOT, "V5_0_0_SNAPSHOT"),
        (413, "V5_0_0"),
        (512, "V5_5_0_SNAPSHOT"),
        (195, "V3_9_1"),
        (611, "V5_9_9"),
        (9999, "V5_9_9"),
        (63, "VERSION_63"),
    ],
)
def test_a_number_has_a_name(ordinal: int, name: str):
    assert version_desc(ordinal) == name
