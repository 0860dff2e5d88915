"""Recorded requests with damage in them against all processors of a broker and of a name server.

Each is answered, with an error where it must be; no processor fails by an error that it did not foresee.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.common.config.load import load_namesrv_settings
from tests.support.fuzzing import derived
from tests.support.golden_frames import frames
from tests.support.transports import connect, feed

SEED = 20_261_121
SHORT, LONG = 400, 50_000
EACH_CODE = 4
# So often the tasks that requests have started get time to end.
REST = 50


@cache
def requests() -> tuple[bytes, ...]:
    """Some of each code and encoding, from the mark on: the length is put before them when they are damaged."""
    by_code: dict[tuple[int, bool], list[bytes]] = {}
    for frame in frames():
        if not frame.flag & 1 and len(frame.data) < 5000:
            by_code.setdefault((frame.code, frame.binary), []).append(frame.data[4:])
    chance = random.Random(SEED)
    return tuple(data for each in by_code.values() for data in chance.sample(each, min(EACH_CODE, len(each))))


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[tuple[dict[int, Route], Callable[[], None]]]:
    """The processors of a broker that does not listen, over a store."""
    controller = BrokerController(broker_settings(0, folder, ""))
    await controller.store.start()
    try:
        yield controller.routes, controller.store.appender.dispatch
    finally:
        await controller.store.stop()
        await controller.stop()


@asynccontextmanager
async def namesrv(folder: Path) -> AsyncIterator[tuple[dict[int, Route], None]]:
    """The processors of a name server that does not listen."""
    settings = folder / "namesrv.conf"
    settings.write_text(f"kvConfigPath={folder}/kvConfig.json\n")
    controller = NamesrvController(load_namesrv_settings(settings))
    try:
        yield controller.routes, None
    finally:
        await controller.stop()


SERVERS = {"broker": broker, "namesrv": namesrv}


@contextmanager
def unforeseen() -> Iterator[list[str]]:
    """Errors that were logged with their trace."""
    found: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = (  # type: ignore[method-assign]
        lambda record: found.append(f"{record.getMessage()}: {record.exc_info[1]!r}") if record.exc_info else None
    )
    logger = logging.getLogger("rocketbroker")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


async def send_many(server: str, folder: Path, count: int) -> int:
    """Give a server damaged requests, each over a connection of its own; gives how many were answered."""
    answered = 0
    async with SERVERS[server](folder) as (routes, end_batch):
        with unforeseen() as errors:
            for number, data in enumerate(derived(requests()[0], requests(), SEED, count)):
                connection, transport, endpoint = connect(routes, on_batch_end=end_batch)
                feed(connection, len(data).to_bytes(4, "big") + data)
                await asyncio.sleep(0.01 if number % REST == 0 else 0)
                await endpoint.tasks.stop()
                answered += bool(transport.written)
                connection.connection_lost(None)
                assert not errors, (number, data)
    return answered


@pytest.mark.parametrize("server", SERVERS)
async def test_requests_with_damage_are_answered(server: str, tmp_path: Path) -> None:
    assert await send_many(server, tmp_path, SHORT) > SHORT // 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server", SERVERS)
async def test_many(
    server: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    answered = await send_many(server, tmp_path, LONG)
    record_property("cases", LONG)
    with capsys.disabled():
        print(f"\nfuzz requests of a {server}: seed {SEED}, {LONG} cases, {answered} answered at once")
    assert answered
