"""QUERY_DATA_VERSION (322): comparison of a broker's topics with those that it last registered."""

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import QueryDataVersionRequestHeader, QueryDataVersionResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.support.request_body import MOST_VALUES

_LARGEST_VERSION = 1_024


class QueryDataVersionProcessor:
    """Compares versions; the request counts as a heartbeat."""

    def __init__(self, routes: RouteInfoManager) -> None:
        self._routes = routes

    def process(self, connection: Connection, command: RemotingCommand[QueryDataVersionRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: The body is not a DataVersion.
        """
        where = (command.header.cluster_name, command.header.broker_addr)
        changed = self._routes.is_broker_topic_config_changed(*where, asked_version(command))
        self._routes.update_broker_info_update_timestamp(*where, connection)
        known = self._routes.data_version(*where)
        header = QueryDataVersionResponseHeader(changed=changed)
        return response(header=header, body=b"" if known is None else known.encode())


def asked_version(command: RemotingCommand[QueryDataVersionRequestHeader]) -> DataVersion | None:
    """Decode the broker's own version, ``None`` if it sent no body."""
    if not command.body:
        return None
    if len(command.body) > _LARGEST_VERSION:
        text = f"the body of QUERY_DATA_VERSION has {len(command.body):,} bytes; a DataVersion has fewer than 100"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
    try:
        return DataVersion.decode(command.body, most_values=MOST_VALUES)
    except CodecError as error:
        text = f"the body of QUERY_DATA_VERSION is not a DataVersion: {error}"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text) from error
