"""UPDATE_NAMESRV_CONFIG (318), GET_NAMESRV_CONFIG (319): settings as properties text."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.common.config.hot_change import NotChangeableError, apply_updates, config_text, parse_updates
from rocketbroker.common.config.properties_file import save_changes
from rocketbroker.common.errors import BrokerResponseError, ConfigError

log = logging.getLogger(__name__)


class NamesrvConfigProcessor:
    """Shows all settings; changes those of the allow-list and stores them.

    Args:
        models: the settings, changed in place.
        path: the file that changes are written to.
        executor: runs the writes, one at a time.
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
            BrokerResponseError: a setting is unknown, fixed or has a wrong value, or the change cannot be stored.
        """
        try:
            changed = apply_updates(self._models, parse_updates(command.body))
        except NotChangeableError as error:
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, str(error)) from error
        except ConfigError as error:
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        if changed:
            log.info("%s changed settings: %s", connection.remote_address, changed)
            self._on_change()
            await self._save(changed)
        return response()

    async def _save(self, changed: dict[str, str]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, save_changes, self._path, changed)
        except (OSError, ConfigError) as error:
            text = f"the change holds until the name server stops, but it cannot be stored in {self._path}: {error}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text) from error

    def process_get(self, connection: Connection, command: Command) -> Command:
        """Answer all settings (319)."""
        return response(body=config_text(self._models).encode())
