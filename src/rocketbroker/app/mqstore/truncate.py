"""``mqstore truncate``: drop the end of a slave's log that its master does not have."""

import asyncio
import logging
import sys
from typing import Annotated

import typer

from rocketbroker.app.mqstore.repair import recover_store, write_table
from rocketbroker.app.mqstore.running import (
    EXIT_NOT_DONE,
    ConfigFile,
    StoreDir,
    reading_a_store,
    store_config,
)
from rocketbroker.app.terminal import say
from rocketbroker.audit.store_audit import with_sizes_of_files
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.persist.config_manager import encode_file
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.transaction.transactional_message_util import CID_SYS_RMQ_TRANS
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig
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
            say("its CommitLog on, set consumer offsets beyond the end of their queue back to it, and let the progress")
            say("of delayed messages, timer messages and transactions begin again.")
            say("Nothing was changed. Copy the store first.")
            raise typer.Exit(EXIT_NOT_DONE)
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout, force=True)
        asyncio.run(_truncate(given if config_file is not None else with_sizes_of_files(given), offset))


async def _truncate(config: MessageStoreConfig, offset: int) -> None:
    offsets = ConsumerOffsetManager(config.config_dir / "consumerOffset.json", SystemClock(), write_table)

    async def truncate(store: MessageStore) -> None:
        end = store.commit_log.max_offset
        # First: a crash after the cut must not leave progress that counts what the cut drops.
        _forget_progress(config, offsets, store)
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


def _forget_progress(config: MessageStoreConfig, offsets: ConsumerOffsetManager, store: MessageStore) -> None:
    """Let deliveries and checks of transactions begin again.

    Their progress may count copies and commits among the dropped messages. A store that is a slave's next takes over
    its master's progress, which may be smaller, but progress does not go back where it is known. Should it be promoted
    before that, all delayed and timer messages that it still has are delivered again: rather twice than not at all.
    """
    replace_contents(config.config_dir / "delayOffset.json", encode_file(DelayOffsetSerializeWrapper()))
    timer = TimerProgress(config.config_dir / "timerProgress.json", store.flusher, write_table)
    timer.load()
    timer.forget(config.timer_precision_ms, config.timer_roll_window_slot * config.timer_precision_ms)
    offsets.remove_group(CID_SYS_RMQ_TRANS)
