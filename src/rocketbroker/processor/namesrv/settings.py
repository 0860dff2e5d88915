"""Settings of the name server as properties text (DefaultRequestProcessor)."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.common.config.current_settings import config_text
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.processor.support.config_change import apply_change, store_change

log = logging.getLogger(__name__)


class NamesrvConfigProcessor:
    """Shows all settings; changes those of the allow-list and stores them.

    Args:
        models: the settings, changed in place.
        path: the file that changes are written to.
        executor: thread of the writes, one at a time.
        on_change: called after a change took effect.
    """

    def __init__(
        self, models: Sequence[ConfigModel], path: Path, executor: Executor, on_change: Callable[[], None]
    ) -> None:
        self._models = models
        self._path = path
        self._executor = executor
        self._on_change = on_change

    async def process_update(self, connection: Connection, command: Command) -> Command:
        """Change settings, all or none (318).

        Raises:
            BrokerResponseError: A setting is unknown, fixed or has a wrong value, or the change cannot be stored.
        """
        changed = apply_change(self._models, bytes(command.body))
        if changed:
            log.info("settings changed by %s: %s", connection.remote_address, changed)
            self._on_change()
            await store_change(self._executor, self._path, changed)
        return response()

    def process_get(self, connection: Connection, command: Command) -> Command:
        """Answer all settings (319)."""
        return response(body=config_text(self._models).encode())
