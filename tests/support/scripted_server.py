"""A name server or broker with scripted answers that records its requests."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from rocketbroker.codec.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketbroker.codec.remoting.handler import HELD, Answer, Connection, MethodTable, Process
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, response, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_server import RemotingServer

Script = Callable[[dict[str, str], bytes], Command | None]


class Asked(NamedTuple):
    """One request that came in."""

    code: int
    fields: dict[str, str]
    body: bytes
    language: str
    oneway: bool


class ScriptedServer:
    """Serves the codes in ``scripts``, HEART_BEAT and UNREGISTER_CLIENT; all others are not supported."""

    def __init__(self, scripts: dict[int, Script], port: int = 0) -> None:
        self.asked: list[Asked] = []
        table = MethodTable()
        ok: Script = lambda _fields, _body: response()  # noqa: E731
        for code, script in {RequestCode.HEART_BEAT: ok, RequestCode.UNREGISTER_CLIENT: ok, **scripts}.items():
            table.add(code, self._handler(script))
        self._server = RemotingServer(table.routes, host="127.0.0.1", port=port)

    def _handler(self, script: Script) -> Process:
        def handle(_connection: Connection, command: Command) -> Answer:
            fields = dict(command.header or {})
            body = bytes(command.body)
            self.asked.append(Asked(command.code, fields, body, command.language, command.is_oneway))
            return script(fields, body) or HELD

        return handle

    def of(self, code: int) -> list[Asked]:
        """Return the requests of one code, in order."""
        return [asked for asked in self.asked if asked.code == code]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    async def stop(self) -> None:
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def header_of(header: CommandCustomHeader) -> dict[str, str]:
    """Return a header as the wire has it."""
    return to_ext_fields(header) or {}


def route_of(brokers: dict[str, str], *, queues: int = 4, perm: int = 6, order: str | None = None) -> TopicRouteData:
    """Return a route to masters given by name and address."""
    return TopicRouteData(
        order,
        [QueueData(name, queues, queues, perm) for name in brokers],
        [BrokerData("DefaultCluster", name, {0: address}) for name, address in brokers.items()],
    )


def name_server(routes: dict[str, TopicRouteData], scripts: dict[int, Script] | None = None) -> ScriptedServer:
    """Return a name server that knows the topics in ``routes``, which the test may change while it runs."""

    def route(fields: dict[str, str], _body: bytes) -> Command:
        data = routes.get(fields["topic"])
        if data is None:
            text = f"No topic route info in name server for the topic: {fields['topic']}"
            return response(ResponseCode.TOPIC_NOT_EXIST, text)
        return response(body=data.encode_standard())

    def cluster(_fields: dict[str, str], _body: bytes) -> Command:
        brokers: dict[str, Any] = {each.broker_name: each for data in routes.values() for each in data.broker_datas}
        return response(body=ClusterInfo(brokers, {"DefaultCluster": sorted(brokers)}).encode())

    own: dict[int, Script] = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_BROKER_CLUSTER_INFO: cluster,
    }
    return ScriptedServer({**own, **(scripts or {})})
