"""Requests that make a broker's metrics appear, and the page that it shows then.

``tests/golden/metrics/apache-5.5.0.txt`` is the page of Apache's broker with one sample for each set of label names and
without values. To record it again, start Apache's broker with a name server and the settings of ``SETTINGS``, and run

    python -m tests.support.metrics_script HOST:PORT http://HOST:PORT/metrics > tests/golden/metrics/apache-5.5.0.txt
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from rocketbroker.codec.remoting.remoting_command import Command
from tests.support.pop_script import CLIENT_ID, PopScript, fields_of, handle_of
from tests.support.raw_client import TIMEOUT_S
from tests.support.raw_requests import pull_fields

GOLDEN = Path(__file__).parent.parent / "golden" / "metrics" / "apache-5.5.0.txt"
SETTINGS: dict[str, str | int] = {"metricsExporterType": "PROM", "metricsLabel": "env:test"}
TOPIC = "Measured"
POPPED, RETURNED = "MeasuredPop", "MeasuredReturn"
GROUP = "CG_Measured"
# The last metrics that appear: a timer message is delivered, and a popped one returns.
_LAST = ("rocketmq_delay_message_latency_seconds_count", "rocketmq_pop_revive_retry_messages_total{")
_LIMIT_S = 60
_HALF, _COMMIT, _ROLLBACK = 4, 8, 12


class Shape(NamedTuple):
    """Type of a metric, its help, its labels and the bounds of its buckets: boards and alerts depend on them."""

    kind: str
    help: str
    labels: frozenset[frozenset[str]]
    bounds: tuple[str, ...]


def shapes(page: str) -> dict[str, Shape]:
    """Return the shape of each metric of a page, by its name in the page."""
    found = {}
    for family in text_string_to_metric_families(page):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = frozenset(frozenset(sample.labels) - {"le"} for sample in family.samples)
        bounds = dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        found[name] = Shape(family.type, family.documentation, labels, tuple(bounds))
    return found


def read_page(url: str) -> str:
    """Return the page at a URL."""
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        page: str = answer.read().decode()
    return page


def cleaned(page: str) -> str:
    """Return a page with one sample for each set of label names, and without values."""
    kept, seen = [], set()
    for line in page.splitlines():
        if line.startswith("#"):
            kept.append(line)
            continue
        sample = line.rpartition(" ")[0]
        name, _, labels = sample.partition("{")
        shape = name, tuple(re.findall(r'(\w+)="', labels)), *re.findall(r'le="[^"]*"', labels)
        if shape not in seen:
            seen.add(shape)
            kept.append(f"{sample} 0")
    return "\n".join(kept) + "\n"


class MetricsScript:
    """Runs the requests with a broker."""

    def __init__(self, address: str) -> None:
        self._pops = PopScript(address)

    def close(self) -> None:
        self._pops.close()

    def run(self) -> None:
        """Send all requests."""
        self._pops.make(TOPIC, 3)
        self._pops.make(POPPED, 3)
        self._pops.make(RETURNED, 1)
        self._ask(200, body=json.dumps({"groupName": GROUP}).encode())
        self._heartbeat()
        self.send("__SHARDINGKEY\x01k\x02")
        self.send("DELAY\x011\x02")
        self.send("TIMER_DELAY_MS\x011000\x02")
        self._transactions()
        self._pull()
        self._pop()

    def _ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> dict[str, str]:
        answer = self._pops.ask("", code, fields, body).answer()
        assert answer.code == 0, (code, answer.remark)
        return fields_of(answer)

    def send(self, properties: str, sys_flag: int = 0) -> dict[str, str]:
        """Send a message to the first queue of the topic; return the fields of the answer."""
        unique = f"UNIQ_KEY\x01{time.time_ns():032X}\x02"
        fields = {
            "a": "PG_Measured", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": sys_flag, "g": time.time_ns() // 10**6,
            "h": 0, "i": properties + unique, "j": 0, "k": "false", "m": "false",
        }  # fmt: skip
        return self._ask(310, fields, b"body")

    def _heartbeat(self) -> None:
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
        consumer = {
            "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{**subscription, "classFilterMode": False, "expressionType": "TAG"}],
        }  # fmt: skip
        body = {
            "clientID": CLIENT_ID,
            "producerDataSet": [{"groupName": "PG_Measured"}],
            "consumerDataSet": [consumer],
        }
        self._ask(34, body=json.dumps(body).encode())

    def _transactions(self) -> None:
        """Commit one, roll one back, and leave one open."""
        for outcome in (_COMMIT, _ROLLBACK, 0):
            half = self.send("TRAN_MSG\x01true\x02PGROUP\x01PG_Measured\x02", _HALF)
            if not outcome:
                return  # Apache's broker answers no end that is open
            fields = {
                "producerGroup": "PG_Measured", "tranStateTableOffset": half["queueOffset"],
                "commitLogOffset": int(half["msgId"][-16:], 16), "commitOrRollback": outcome, "msgId": half["msgId"],
                "fromTransactionCheck": "false", "topic": TOPIC,
            }  # fmt: skip
            self._ask(37, fields)

    def _pull(self) -> None:
        self._ask(11, pull_fields(TOPIC, consumerGroup=GROUP))
        self._ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1})
        held = pull_fields(POPPED, 3, consumerGroup=GROUP, sysFlag="6", suspendTimeoutMillis="100")
        assert self._pops.ask("", 11, held).answer().code != 0
        nothing = pull_fields(TOPIC, 1, consumerGroup=GROUP, subscription="nothing")
        self._pops.ask("", 11, nothing)

    def _pop(self) -> None:
        self._pops.acknowledge("", POPPED, 0, handle_of(self._pop_found(POPPED, 60_000), 0))
        self._pop_found(RETURNED, 1000)

    def _pop_found(self, topic: str, invisible_ms: int) -> Command:
        """Pop once the messages of the topic are in their queue."""
        deadline = time.monotonic() + _LIMIT_S
        while (popped := self._pops.pop("", topic, invisibleTime=invisible_ms).answer()).code:
            assert time.monotonic() < deadline, popped.remark
            time.sleep(0.05)
        return popped


def page_after(address: str, url: str) -> str:
    """Run the script with the broker at an address; return its page once all metrics are there."""
    script = MetricsScript(address)
    try:
        script.run()
        deadline = time.monotonic() + _LIMIT_S
        while not all(each in (page := read_page(url)) for each in _LAST):
            assert time.monotonic() < deadline, page
            time.sleep(0.2)
        return page
    finally:
        script.close()


if __name__ == "__main__":
    print(cleaned(page_after(sys.argv[1], sys.argv[2])), end="")
