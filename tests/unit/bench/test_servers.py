"""Our servers come up, differ from those that do not, and leave nothing behind."""

import os
import sys
from pathlib import Path

import pytest

from bench.harness import BenchError
from bench.measure import anonymous_mib
from bench.servers import OUR_SIDE, Side, running
from tests.support.java_process import cluster_info

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.mark.long
def test_ours_run_with_the_properties_given_and_leave_nothing(tmp_path: Path):
    with running(OUR_SIDE, tmp_path, ["flushDiskType=SYNC_FLUSH"]) as servers:
        assert '"broker-a"' in cluster_info(servers.namesrv)
        assert 0 < servers.broker.seconds < 60
        assert anonymous_mib(servers.broker.pid) > 1
        assert servers.home.parent == tmp_path
        assert "flushDiskType=SYNC_FLUSH" in (servers.home / "broker.properties").read_text()
        pid = servers.broker.pid

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_ends_at_once_is_reported_with_what_it_printed(tmp_path: Path):
    broken = [sys.executable, "-c", "import sys; sys.exit('no such heap')"]
    side = Side("ours", OUR_SIDE.namesrv_command, broken)

    with (
        pytest.raises(BenchError, match=r"the broker ended with exit status 1:\nno such heap"),
        running(side, tmp_path, []),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
