"""A name server without network: its tables and the handlers of all its requests."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.namesrv_table import ConfigStore, NamesrvExecutors, namesrv_routes
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.namesrv_session import RecordedFrame, feed, recorded_requests


class NamesrvFixture:
    """Feeds requests to the handlers as a connection would; files go to ``folder``."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.config = NamesrvConfig.model_validate({"kvConfigPath": str(folder / "kvConfig.json"), **settings})
        self.clock = FakeClock()
        self.connection = FakeConnection()
        self.executor = ThreadPoolExecutor(1)
        self.settings_path = folder / "namesrv.properties"
        self.probed: list[str] = []
        self.manager = RouteInfoManager(
            self.config,
            self.clock,
            MinBrokerIdNotifier(self.config, lambda address, header: None),
            lambda address, connection: self.probed.append(address),
        )
        self.kv_configs = KVConfigManager(self.config, self.executor)
        store = ConfigStore([self.config], self.settings_path, lambda _: self.manager.answers.forget())
        executors = NamesrvExecutors(self.executor, self.executor)
        self.routes = namesrv_routes(self.config, self.manager, self.kv_configs, store, executors, self.clock)

    def ask(self, code: int, header: object = None, body: bytes = b"", version: int = 513) -> Command:
        """Return the answer to a request; what a handler raises is the answer's code and remark, as on a connection."""
        command = request(code, header, body)
        command.version = version
        return self._answer(code, encode_frame(command))

    def replay(self, recorded: RecordedFrame) -> Command:
        """Return the answer to a recorded request."""
        return self._answer(recorded.command.code, recorded.data)

    def register_recorded_broker(self) -> RecordedFrame:
        """Feed the first registration of the recorded master."""
        recorded = recorded_requests(103)[0]
        assert self.replay(recorded).code == 0
        return recorded

    def _answer(self, code: int, frame: bytes) -> Command:
        async def wait() -> Any:
            answer = feed(self.routes[int(code)], frame, self.connection)
            return await answer if inspect.isawaitable(answer) else answer

        try:
            answer: Command = asyncio.run(wait())
        except BrokerResponseError as error:
            return Command(error.code, remark=error.remark)
        return answer

    def close(self) -> None:
        self.executor.shutdown()
