"""A name server for broker tests that records registrations and gives scripted answers."""

from typing import Any

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.bodies.route import QueueData, TopicRouteData
from rocketbroker.codec.remoting.handler import Connection, MethodTable
from rocketbroker.codec.remoting.headers.namesrv import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import CURRENT_VERSION, Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.transport.remoting_server import RemotingServer


class FakeNamesrv:
    """Server on a port of 127.0.0.1, by default a free one, that records its requests."""

    def __init__(self, port: int = 0) -> None:
        self.registrations: list[tuple[RegisterBrokerRequestHeader, bytes]] = []
        # By topic, of REGISTER_TOPIC_IN_NAMESRV.
        self.single: dict[str, list[QueueData]] = {}
        self.unregistrations: list[UnRegisterBrokerRequestHeader] = []
        self.data_version_queries = 0
        self.changed = False
        self.code = 0
        self.remark: str | None = None
        self.order_topics: dict[str, str] = {}
        # Fields of the answer to a slave; ``body`` replaces the ordered topics.
        self.master: dict[str, str] = {}
        self.body = b""
        table = MethodTable()
        table.add(RequestCode.REGISTER_BROKER, self._register, RegisterBrokerRequestHeader)
        table.add(RequestCode.UNREGISTER_BROKER, self._unregister, UnRegisterBrokerRequestHeader)
        table.add(RequestCode.QUERY_DATA_VERSION, self._query_data_version, QueryDataVersionRequestHeader)
        table.add(RequestCode.REGISTER_TOPIC_IN_NAMESRV, self._register_topic, RegisterTopicRequestHeader)
        self.server = RemotingServer(table.routes, host="127.0.0.1", port=port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def topics(self, number: int = -1) -> dict[str, Any]:
        """Return the topics of one registration."""
        header, body = self.registrations[number]
        if header.compressed:
            read = RegisterBrokerBody.decode_compressed(body, CURRENT_VERSION)
        else:
            read = RegisterBrokerBody.decode(body)
        return read.topic_config_serialize_wrapper.topic_config_table

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    def _register(self, _connection: Connection, command: Command) -> Command:
        self.registrations.append((command.header, bytes(command.body)))
        return response(self.code, self.remark, self.master, self.body or KVTable(self.order_topics).encode())

    def _register_topic(self, _connection: Connection, command: Command) -> Command:
        self.single[command.header.topic] = TopicRouteData.decode(command.body).queue_datas
        return response(self.code, self.remark)

    def _unregister(self, _connection: Connection, command: Command) -> Command:
        self.unregistrations.append(command.header)
        return response()

    def _query_data_version(self, _connection: Connection, _command: Command) -> Command:
        self.data_version_queries += 1
        return response(header={"changed": self.changed})
