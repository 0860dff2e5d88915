"""PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219)."""

from dataclasses import dataclass

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, shown
from rocketbroker.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from rocketbroker.namesrv.names import check_key, check_topic
from rocketbroker.processor.support.request_family import answers


@dataclass(frozen=True, slots=True)
class KVConfigRequests:
    """Key-value configuration; a change is answered once it is on disk."""

    kv_configs: KVConfigManager

    @answers(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader)
    async def put_kv_config(
        self, connection: Connection, command: RemotingCommand[PutKVConfigRequestHeader]
    ) -> Command:
        """Set a value.

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
            await self.kv_configs.put(header.namespace, header.key, header.value)
        except OSError as error:
            raise _not_stored(error) from error
        return response()

    @answers(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader)
    def get_kv_config(self, connection: Connection, command: RemotingCommand[GetKVConfigRequestHeader]) -> Command:
        """Answer a value."""
        header = command.header
        value = self.kv_configs.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {shown(header.namespace)} Key: {shown(header.key)}"
            return response(ResponseCode.QUERY_NOT_FOUND, remark, GetKVConfigResponseHeader())
        return response(header=GetKVConfigResponseHeader(value=value))

    @answers(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader)
    async def delete_kv_config(
        self, connection: Connection, command: RemotingCommand[DeleteKVConfigRequestHeader]
    ) -> Command:
        """Drop a value; a missing one is not an error.

        Raises:
            BrokerResponseError: The change cannot be stored.
        """
        try:
            await self.kv_configs.delete(command.header.namespace, command.header.key)
        except OSError as error:
            raise _not_stored(error) from error
        return response()

    @answers(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader)
    def get_kvlist_by_namespace(
        self, connection: Connection, command: RemotingCommand[GetKVListByNamespaceRequestHeader]
    ) -> Command:
        """Answer all pairs of a namespace.

        Raises:
            BrokerResponseError: They do not fit into a frame.
        """
        body = self.kv_configs.encoded_namespace(command.header.namespace)
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
