"""Routes of topics on all brokers, as the name servers know them (org.apache.rocketmq.broker.topic)."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.transport.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_MOST_ROUTES: Final = 1_024
# Pause after a request that brought no route.
_RETRY_S: Final = 1.0


class _Known:
    """Queues of a topic, none if it has no route; ``due`` for another look at a time of the event loop."""

    __slots__ = ("due", "lock", "queues")

    def __init__(self) -> None:
        self.queues: list[MessageQueue] | None = None
        self.due = 0.0
        self.lock = asyncio.Lock()


class TopicRouteInfoManager:
    """Asks the name servers in turn, and remembers the queues that can be read.

    Queues are asked for by the clients of a group, each every 20 s and all at once after a change of the group. So one
    request serves all who wait for a topic, and its answer counts for ``loadBalancePollNameServerInterval``. A name
    server that does not answer leaves the queues as they were.

    Args:
        config: the interval.
        client: sends the requests.
        name_servers: returns their addresses.
    """

    def __init__(self, config: BrokerConfig, client: RemotingClient, name_servers: Callable[[], list[str]]) -> None:
        self._config = config
        self._client = client
        self._name_servers = name_servers
        # The topics asked for most recently, oldest first.
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def fetch(self, topic: str) -> TopicRouteData:
        """Return the route of a topic from the first name server that has it.

        Raises:
            CodecError: The name servers have no route, or none is known.
            RemotingError: They do not answer.
        """
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic, True))
        failure: RemotingError | CodecError = CodecError("no name server is known")
        for name_server in self._name_servers():
            try:
                answer = await self._client.invoke(name_server, command)
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRouteData.decode(answer.body)
                failure = CodecError(f"{name_server} answers {answer.code} {(answer.remark or '')[:200]}")
            except (RemotingError, CodecError) as error:
                failure = error
        raise failure

    async def subscribe_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic that can be read, on all brokers; ``None`` if no route of it is known."""
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = _Known()
            if len(self._known) > _MOST_ROUTES:
                self._known.popitem(last=False)
        self._known.move_to_end(topic)
        loop = asyncio.get_running_loop()
        async with known.lock:
            if loop.time() >= known.due:
                pause_s = self._config.load_balance_poll_name_server_interval / 1000
                try:
                    known.queues = (await self.fetch(topic)).subscribe_queues(topic)
                except (RemotingError, CodecError) as error:
                    log.debug("the route of topic %s was not refreshed: %s", topic, error)
                    pause_s = _RETRY_S
                known.due = loop.time() + pause_s
        return known.queues
