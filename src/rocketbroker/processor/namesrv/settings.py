"""Settings of the name server as properties text (DefaultRequestProcessor)."""

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.auth.requester import Requester
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.current_settings import config_text
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.processor.support.config_change import apply_change, store_change
from rocketbroker.processor.support.request_family import answers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamesrvSettingsRequests:
    """Settings: shows all, and changes those of the allow-list in place and in their file.

    Attributes:
        models: the settings, changed in place.
        path: the file that changes are written to.
        executor: thread of the writes, one at a time.
        on_change: called with the names of the settings after a change took effect.
    """

    models: Sequence[ConfigModel]
    path: Path
    executor: Executor
    on_change: Callable[[Collection[str]], None]

    @answers(RequestCode.UPDATE_NAMESRV_CONFIG, asks=True)
    async def update_namesrv_config(
        self, connection: Connection, command: Command, requester: Requester | None = None
    ) -> Command:
        """Change settings, all or none.

        Raises:
            BrokerResponseError: A setting is unknown, fixed or has a wrong value, or the change cannot be stored.
        """
        changed = apply_change(self.models, bytes(command.body), requester)
        if changed:
            log.info("settings changed by %s: %s", connection.remote_address, changed)
            self.on_change(changed)
            await store_change(self.executor, self.path, changed)
        return response()

    @answers(RequestCode.GET_NAMESRV_CONFIG)
    def get_namesrv_config(self, connection: Connection, command: Command) -> Command:
        """Answer all settings."""
        return response(body=config_text(self.models).encode())
