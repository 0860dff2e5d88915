"""A broker with many connections and queues, here with few."""

import re
import resource
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.broker_scale import Run, _raise_open_files
from bench.harness import BenchError
from bench.servers import opened

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_more_connections_than_open_files_are_refused() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with pytest.raises(BenchError, match=r"connections need .* open files"):
        _raise_open_files(hard)


@pytest.mark.soak
def test_each_step_has_its_figures(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(opened(tmp_path / "store", tmp_path))
        figures = dict(Run(broker.address, broker.pid, 3, 6).figures(stack, 0.1, 5))

    assert [name for name in figures if re.search(r", \d+$", name)] == [
        "topics, 6", "queues, with a message each, 24", "consumer groups, 3", "connections, 3",
        "consumers in a group, 3", "committed offsets, 24", "held pulls, 24",
    ]  # fmt: skip
    assert re.match(r"least \d+\.\d", figures["a held pull is answered after"])
