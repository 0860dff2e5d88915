"""``mqstore truncate``: drop the end of a slave's log that its master does not have."""

import asyncio
import logging
import sys
from typing import Annotated

import typer

from rocketbroker.app.mqstore.repair import write_table
from rocketbroker.app.mqstore.running import (
    EXIT_NOT_DONE,
    ConfigFile,
    StoreDir,
    reading_a_store,
    store_config,
)
from rocketbroker.app.terminal import say
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.audit.store_repair import recover_store
from rocketbroker.store.audit.store_sizes import with_sizes_of_files
from rocketbroker.store.message_store import MessageStore


def command(
    directory: StoreDir,
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="CommitLog offset of the first record to drop.")],
    config_file: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Truncate; without it, only print the plan.")] = False,
) -> None:
    """Drop all messages from a record's CommitLog offset on, with their entries and keys.

    Exit with 3 if --yes was not given, and with 2 if no record begins there.
    """
    with reading_a_store():
        given = store_config(directory, config_file)
        if not yes:
            say(f"mqstore truncate --yes would open {directory} as a broker does, drop all messages from {offset} of")
            say("its CommitLog on, and set consumer offsets beyond the end of their queue back to it.")
            say("Nothing was changed. Copy the store first.")
            raise typer.Exit(EXIT_NOT_DONE)
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout, force=True)
        asyncio.run(_truncate(given if config_file is not None else with_sizes_of_files(given), offset))


async def _truncate(config: MessageStoreConfig, offset: int) -> None:
    offsets = ConsumerOffsetManager(config.config_dir / "consumerOffset.json", SystemClock(), write_table)

    async def truncate(store: MessageStore) -> None:
        end = store.commit_log.max_offset
        replica = store.make_replica_log()
        await replica.start()
        try:
            await replica.truncate(offset)
        finally:
            await replica.stop()
        say(f"dropped {end - offset:,} bytes; the CommitLog ends at {offset}")
        for back in offsets.set_back(store.queues.max_offset_in_queue):
            say(back)
        offsets.flush()

    await recover_store(config, offsets.load, truncate)
