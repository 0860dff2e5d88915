"""``mqstore check`` on the store of a broker that does not run."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.our_servers import ROOT

# What a kill leaves to the next start: keys wait up to 1 s for others before they are entered, and under SYNC_FLUSH a
# message is entered into its queue once it is on disk. A kill amid a start leaves queues that are not rebuilt yet
# and end before what was consumed; that no committed offset is beyond the end of the log is checked beside it.
LEFT_BY_A_KILL = {
    "index-missing-key",
    "message-not-queued",
    "consumer-offset-beyond-queue",
    "index-chain",  # amid the entry of a batch of keys
    "log-torn-tail",  # amid the storing of a record
}
LIMIT_S = 120


def check_store(store: Path) -> None:
    """Fail with the findings if there is an error, or a warning that a kill does not explain."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "rocketbroker.app.mqstore.cli",
        "check",
        "--json",
        "--limit",
        "5",
        str(store),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"mqstore check ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr}"
    report = json.loads(done.stdout)
    allowed = set() if report["cleanStop"] else LEFT_BY_A_KILL
    assert {each["rule"] for each in report["rules"]} <= allowed, done.stdout[-4000:]
