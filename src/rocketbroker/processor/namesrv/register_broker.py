"""REGISTER_BROKER (103): a broker says where it is and which topics it has."""

import zlib

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.topic_config import (
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.namesrv.broker_registration import BrokerRegistration
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.names import check_address, check_broker_name
from rocketbroker.namesrv.route_info_manager import RouteInfoManager

Request = RemotingCommand[RegisterBrokerRequestHeader]

# First byte of a zlib stream. Brokers of 5.x with compressedRegister=true send one under a header that denies it.
ZLIB_MARK = 0x78

# MQVersion.Version.V3_0_11.ordinal()
VERSION_3_0_11 = 37

_MAX_HEARTBEAT_TIMEOUT_MS = 86_400_000
_CRC_BITS = 0x7FFFFFFF


class RegisterBrokerProcessor:
    """Takes registrations; a slave's answer names its master, every answer may carry the order topics."""

    def __init__(self, config: NamesrvConfig, routes: RouteInfoManager, kv_configs: KVConfigManager) -> None:
        self._config = config
        self._routes = routes
        self._kv_configs = kv_configs

    def process(self, connection: Connection, command: Request) -> Command:
        """Answer a registration.

        Raises:
            BrokerResponseError: a name, an id or the body is wrong.
        """
        header = command.header
        if header.body_crc32 and zlib.crc32(command.body) & _CRC_BITS != header.body_crc32:
            return response(ResponseCode.SYSTEM_ERROR, "crc32 not match", RegisterBrokerResponseHeader())
        check(header)
        result = self._routes.register_broker(registration(connection, command))
        if result is None:
            return response(ResponseCode.SYSTEM_ERROR, "register broker failed", RegisterBrokerResponseHeader())
        answer = RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_addr, master_addr=result.master_addr)
        return response(header=answer, body=self._order_topics())

    def _order_topics(self) -> bytes:
        if not self._config.return_order_topic_config_to_broker:
            return b""
        return self._kv_configs.encoded_order_topics()


def check(header: RegisterBrokerRequestHeader) -> None:
    """Raises:
    BrokerResponseError: a name, the id or the timeout is out of range; the text says what would be right.
    """
    check_broker_name("clusterName", header.cluster_name)
    check_broker_name("brokerName", header.broker_name)
    check_address(header.broker_addr)
    if header.broker_id < 0:
        raise BrokerResponseError(
            ResponseCode.INVALID_PARAMETER, f"the brokerId {header.broker_id} is not allowed; right is 0 or more"
        )
    timeout = header.heartbeat_timeout_millis
    if timeout is not None and not 0 < timeout <= _MAX_HEARTBEAT_TIMEOUT_MS:
        text = f"the heartbeatTimeoutMillis {timeout} is not allowed; right is 1 to {_MAX_HEARTBEAT_TIMEOUT_MS}"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, text)


def registration(connection: Connection, command: Request) -> BrokerRegistration:
    """The registration in a request.

    Raises:
        BrokerResponseError: the body cannot be read.
    """
    header = command.header
    try:
        body = _body(command)
    except CodecError as error:
        raise BrokerResponseError(
            ResponseCode.SYSTEM_ERROR, f"the body of REGISTER_BROKER cannot be read: {error}"
        ) from error
    return BrokerRegistration(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_addr=header.broker_addr,
        broker_id=header.broker_id,
        ha_server_addr=header.ha_server_addr,
        heartbeat_timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
        body=body,
        connection=connection,
    )


def _body(command: Request) -> RegisterBrokerBody:
    if not command.body:
        return RegisterBrokerBody()
    if command.version < VERSION_3_0_11:
        # Brokers that old send their topics alone.
        topics = TopicConfigSerializeWrapper.decode(command.body)
        wrapper = TopicConfigAndMappingSerializeWrapper(topics.topic_config_table, topics.data_version)
        return RegisterBrokerBody(wrapper)
    if command.header.compressed or command.body[0] == ZLIB_MARK:
        return RegisterBrokerBody.decode_compressed(command.body, command.version)
    return RegisterBrokerBody.decode(command.body)
