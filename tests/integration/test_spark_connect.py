"""Tables, streams, jobs and brokers through Spark Connect: the client has no JVM, and sends plans to a server."""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rocketbroker.testing import RocketMQServer
from tests.support import golden_store
from tests.support.commit_log_writer import overwrite
from tests.support.our_servers import ROOT
from tests.support.slow_store_reader import slow_rows
from tests.support.table_rows import table_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="the extra connect is not installed"),
]

LIMIT_S = 900  # a machine may have much else to do
DAMAGED = 5  # number of the record


def run_client(*arguments: str | Path) -> dict[str, object]:
    """Return the client's output; nothing in its environment leads to a JVM."""
    hidden = {"JAVA_HOME", "SPARK_HOME", "SPARK_REMOTE"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PATH": "", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.support.connect_client", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert (done.returncode, len(lines)) == (0, 1), done.stdout[-2000:] + done.stderr[-6000:]
    result: dict[str, object] = json.loads(lines[0].removeprefix("RESULT "))
    return result


def test_tables_views_filters_streams_jobs_and_brokers(tmp_path: Path):
    from tests.support.connect_server import connect_server

    store = golden_store.unpack("clean", tmp_path)
    damaged = golden_store.unpack("clean", tmp_path / "damaged")
    rows = slow_rows(store / "commitlog")
    lost = rows[DAMAGED]
    overwrite(damaged / "commitlog" / ("0" * 20), lost["physical_offset"] + 4, b"????")
    home = tmp_path / "server"
    home.mkdir()
    with RocketMQServer() as mq, connect_server(home) as address:
        result = run_client(address, store, damaged, tmp_path, mq.namesrv_addr)
        bodies = sorted(message.body for message in mq.messages("Copied"))
    assert bodies == [b"first", b"second"]
    counts = Counter(row["topic"] for row in rows if row["queue_id"] == 0)
    assert result == {
        "counts": sorted([topic, count] for topic, count in counts.items()),
        "chosen": sum(counts.values()),
        "parsed": sum(row["body"].startswith(b"{") for row in rows),
        "topics": sorted(row["topic"] for row in table_rows(store, "topics")),
        "streamed": [row["physical_offset"] for row in rows],
        "copied": ["first", "second"],
        "traffic": len(rows) - 1,
        "exported": len(rows) - 1,
        "not_read": [1, lost["size"]],
    }
