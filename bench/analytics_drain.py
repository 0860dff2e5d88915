"""The official Java client as a baseline for jobs: it consumes the largest topic of a store from our broker."""

import shutil
from pathlib import Path
from typing import Final

import numpy as np

from bench import load, raw_load
from bench.raw_load import LoadError
from bench.servers import name_server, opened, our_side
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from tests.support.java_toolchain import JavaError, missing_tools

DRAIN: Final = "java_drain"
TOPIC: Final = "orders"
_GROUP: Final = "bench_analytics"
_LIMIT: Final = 900  # seconds


def java_drain(root: Path, home: Path, segment: int) -> float:
    """Return the messages a second of a push consumer, from its first to its last delivery.

    Args:
        root: the store; a copy is served because a broker writes delayed messages into it.
        home: folder for the copy and for the logs.
        segment: size of its CommitLog files in bytes.

    Raises:
        JavaError, LoadError, ServerError: Java is missing, or a process failed.
    """
    reason = missing_tools()
    if reason:
        raise JavaError(reason)
    load.prepare()
    copy, servers = shutil.copytree(root, home / "drained"), home / "drain"
    servers.mkdir()
    queues = sorted((copy / "consumequeue" / TOPIC).iterdir(), key=lambda path: int(path.name))
    messages = sum(
        int((np.fromfile(path, CONSUME_QUEUE_ENTRY)["size"] > 0).sum()) for queue in queues for path in queue.iterdir()
    )
    settings = [f"mappedFileSizeCommitLog={segment}", "mappedFileSizeConsumeQueue=6000000", "messageIndexEnable=false"]
    with (
        name_server(our_side(), servers) as namesrv,
        opened(copy, servers, settings, namesrv=namesrv.address) as broker,
    ):
        raw_load.commit_offsets(broker.address, _GROUP, TOPIC, [0] * len(queues))
        outcome = load.run_load(
            ["drain", namesrv.address, TOPIC, _GROUP, str(messages), str(_LIMIT)], servers, limit=_LIMIT + 60
        )
    shutil.rmtree(copy)
    if outcome.trouble or outcome.rate is None:
        raise LoadError(outcome.trouble)
    return outcome.rate
