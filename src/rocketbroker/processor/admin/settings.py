"""Settings of the broker as properties text (AdminBrokerProcessor)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from rocketbroker.auth.requester import Requester
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import (
    GetBrokerConfigResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.current_settings import config_text
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.processor.support.config_change import apply_change, store_change
from rocketbroker.processor.support.request_family import answers

log = logging.getLogger(__name__)

# Settings that name servers and clients know.
REGISTERED_SETTINGS = frozenset({"brokerIP1", "listenPort", "brokerPermission"})


@dataclass(slots=True)
class SettingsRequests:
    """Settings: shows all, and changes those of the allow-list in place and in their file.

    Attributes:
        models: the settings, changed in place.
        path: the file that changes are written to.
        executor: thread of the writes, one at a time.
        register: called after a setting known to name servers has changed. It must raise the data version of the topics
        and register, since name servers adopt the topics' permissions only with a new version. Returns what the
        answer waits for.
        on_change: called with the names of changed settings; it lets those act that are not read at each use.
        clock: clock for the version of the settings.
    """

    models: Sequence[ConfigModel]
    path: Path
    executor: Executor
    register: Callable[[], Collection[asyncio.Future[None]]]
    on_change: Callable[[Collection[str]], None]
    clock: Clock
    _version: DataVersion = field(init=False)

    def __post_init__(self) -> None:
        self._version = DataVersion(timestamp=self.clock.time_ms())

    @answers(RequestCode.UPDATE_BROKER_CONFIG, asks=True)
    async def update_broker_config(
        self, connection: Connection, command: Command, requester: Requester | None = None
    ) -> Command:
        """Change settings, all or none.

        Raises:
            BrokerResponseError: NO_PERMISSION for a setting that is fixed, INVALID_PARAMETER for one that is unknown or
                has a wrong value, SYSTEM_ERROR when the change cannot be stored.
        """
        changed = apply_change(self.models, bytes(command.body), requester)
        if changed:
            log.info("settings changed by %s: %s", connection.remote_address, changed)
            self._version.next_version(self.clock.time_ms())
            registered = () if REGISTERED_SETTINGS.isdisjoint(changed) else self.register()
            self.on_change(changed)
            await store_change(self.executor, self.path, changed)
            if registered:
                await asyncio.wait(registered)
        return response()

    @answers(RequestCode.GET_BROKER_CONFIG)
    def get_broker_config(self, _connection: Connection, _command: Command) -> Command:
        """Answer all settings and their version."""
        version = GetBrokerConfigResponseHeader(self._version.encode().decode())
        return response(header=version, body=config_text(self.models).encode())
