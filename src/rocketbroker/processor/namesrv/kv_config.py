"""PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219)."""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, shown
from rocketbroker.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from rocketbroker.namesrv.names import check_key, check_topic


class KVConfigProcessor:
    """Reads and changes the key-value configuration; a change is answered once it is on disk."""

    def __init__(self, kv_configs: KVConfigManager) -> None:
        self._kv_configs = kv_configs

    async def process_put(self, connection: Connection, command: RemotingCommand[PutKVConfigRequestHeader]) -> Command:
        """Set a value (100).

        Raises:
            BrokerResponseError: Namespace or key is not allowed, a limit is exceeded, or the value cannot be stored.
        """
        header = command.header
        check_key("namespace", header.namespace)
        if header.namespace == NAMESPACE_ORDER_TOPIC_CONFIG:
            check_topic(header.key)
        else:
            check_key("key", header.key)
        try:
            await self._kv_configs.put(header.namespace, header.key, header.value)
        except OSError as error:
            raise _not_stored(error) from error
        return response()

    def process_get(self, connection: Connection, command: RemotingCommand[GetKVConfigRequestHeader]) -> Command:
        """Answer a value (101)."""
        header = command.header
        value = self._kv_configs.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {shown(header.namespace)} Key: {shown(header.key)}"
            return response(ResponseCode.QUERY_NOT_FOUND, remark, GetKVConfigResponseHeader())
        return response(header=GetKVConfigResponseHeader(value=value))

    async def process_delete(
        self, connection: Connection, command: RemotingCommand[DeleteKVConfigRequestHeader]
    ) -> Command:
        """Drop a value (102); a missing one is not an error.

        Raises:
            BrokerResponseError: The change cannot be stored.
        """
        try:
            await self._kv_configs.delete(command.header.namespace, command.header.key)
        except OSError as error:
            raise _not_stored(error) from error
        return response()

    def process_list(
        self, connection: Connection, command: RemotingCommand[GetKVListByNamespaceRequestHeader]
    ) -> Command:
        """Answer all pairs of a namespace (219).

        Raises:
            BrokerResponseError: They do not fit into a frame.
        """
        body = self._kv_configs.encoded_namespace(command.header.namespace)
        if body is None:
            remark = f"No config item, Namespace: {shown(command.header.namespace)}"
            return response(ResponseCode.QUERY_NOT_FOUND, remark)
        return response(body=body)


def _not_stored(error: OSError) -> BrokerResponseError:
    text = (
        f"the change applies until the name server stops, but it cannot be stored in kvConfigPath: {error}; "
        "make the path writable, or free space there, and make the change again"
    )
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
