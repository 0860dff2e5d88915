"""Keeps a broker registered at one name server (BrokerOuterAPI.registerBroker, RouteInfoManager's counterpart)."""

import asyncio
import logging
from collections.abc import Callable

from rocketbroker.broker.broker_registration import BrokerRegistration
from rocketbroker.codec.remoting.bodies.tables import KVTable
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.custom_header import from_ext_fields
from rocketbroker.codec.remoting.headers.namesrv import QueryDataVersionResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0


class NamesrvLink:
    """One name server: what it is still to be told, and the task that tells it, one request after the other.

    Args:
        address: ``host:port`` of the name server.
        client: sends the requests.
        config: timeouts and whether to register when nothing has changed.
        registration: makes the requests.
        on_order_topics: told the ordered topics that the name server has configured.
    """

    def __init__(
        self,
        address: str,
        client: RemotingClient,
        config: BrokerConfig,
        registration: BrokerRegistration,
        on_order_topics: Callable[[list[str]], None],
    ) -> None:
        self.address = address
        self._client = client
        self._config = config
        self._registration = registration
        self._on_order_topics = on_order_topics
        self._tasks = TaskOwner(f"NamesrvLink {address}")
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._whole_due = False
        self._changed: dict[str, TopicConfig] = {}
        # None: not tried yet; "": registered; else why not.
        self._failure: str | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the last registration succeeded."""
        return self._failure == ""

    def start(self) -> None:
        """Start telling."""
        self._tasks.forever(self._run, "run")

    def register_whole(self) -> None:
        """Have all topics registered soon."""
        self._whole_due = True
        self._kick()

    def register_increment(self, topics: list[TopicConfig]) -> None:
        """Have changed topics registered soon."""
        self._changed.update((topic.topic_name, topic) for topic in topics)
        self._kick()

    async def settled(self) -> None:
        """Wait until all that was asked for is done or has failed."""
        await self._idle.wait()

    async def stop(self, *, unregister: bool) -> None:
        """End the task and, with ``unregister``, tell the name server that the broker is gone."""
        await self._tasks.stop()
        self._idle.set()
        if unregister and self.is_registered:
            try:
                await self._client.invoke(self.address, self._registration.unregister(), UNREGISTER_TIMEOUT_S)
            except RemotingError as error:
                log.warning("could not unregister from name server %s: %s", self.address, error)
        self._client.close_address(self.address)

    def _kick(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._tell()
            except (RemotingError, CodecError) as error:
                self._note(str(error))
            if not self._wake.is_set():
                self._idle.set()

    async def _tell(self) -> None:
        """Send what is due. What fails is made up for by the next whole registration."""
        changed, self._changed = self._changed, {}
        if not self._whole_due:
            await self._register(self._registration.increment(changed.values()))
            return
        self._whole_due = False
        if self._config.force_register or not self.is_registered or await self._is_outdated():
            answer = await self._register(self._registration.whole())
            if answer.body:
                self._on_order_topics(list(KVTable.decode(answer.body).table))

    async def _register(self, command: Command) -> Command:
        answer = await self._invoke(command)
        if answer.code != ResponseCode.SUCCESS:
            self._note(f"it answers {answer.code} {answer.remark}")
        else:
            self._note("")
        return answer

    async def _is_outdated(self) -> bool:
        answer = await self._invoke(self._registration.query_data_version())
        if answer.code != ResponseCode.SUCCESS:
            return True
        return from_ext_fields(answer.header, QueryDataVersionResponseHeader).changed

    async def _invoke(self, command: Command) -> Command:
        return await self._client.invoke(self.address, command, self._config.register_broker_timeout_mills / 1000)

    def _note(self, failure: str) -> None:
        """Log the state when it changes, not at each attempt."""
        if failure and not self._failure:
            log.error("not registered at name server %s: %s; it is tried again", self.address, failure)
        elif not failure and self._failure != "":
            log.info("registered at name server %s", self.address)
        self._failure = failure
