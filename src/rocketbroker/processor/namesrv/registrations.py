"""Registrations and heartbeats of brokers (DefaultRequestProcessor)."""

import asyncio
import zlib
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody, RegistrationLimits
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.namesrv.broker_table import BrokerIdentity, BrokerRegistration, registration_of
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.names import check_address, check_broker_name, check_key
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.support.request_checks import read_body
from rocketbroker.processor.support.request_family import answers

Request = RemotingCommand[RegisterBrokerRequestHeader]

# First byte of a zlib stream. Brokers of 5.x with compressedRegister=true send one although their header says
# otherwise.
ZLIB_MARK = 0x78

# MQVersion.Version.V3_0_11.ordinal()
VERSION_3_0_11 = 37

_MAX_HEARTBEAT_TIMEOUT_MS = 86_400_000
_CRC_BITS = 0x7FFFFFFF
# Longest body that is read on the event loop: 50 topics, or 20 ms of the slowest dialect.
_INLINE_BYTES = 8_192
_LARGEST_VERSION = 1_024
# RocketMQ does not clear the initial remark of GET_BROKER_MEMBER_GROUP.
_REMARK = "not set any response code"


@dataclass(slots=True)
class RegistrationRequests:
    """Registrations of brokers, and requests that keep or end them.

    A body that is large, or grows when it is decompressed, is decoded on a thread, and then swapped in at once.
    Registrations are accepted in the order in which they arrive. Brokers repeat theirs every 30 s: a large body that
    has not changed is not decoded again.

    Attributes:
        config: settings, read at each use.
        manager: the tables.
        kv_configs: source of the order topics.
        decoder: one thread that reads large bodies, so that their order is kept.
    """

    config: NamesrvConfig
    manager: RouteInfoManager
    kv_configs: KVConfigManager
    decoder: Executor
    _waiting_bytes: int = field(default=0, init=False)

    @answers(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, Audience.BROKER, takes_large_bodies=True)
    def register_broker(self, connection: Connection, command: Request) -> Command | asyncio.Future[Command]:
        """Accept a registration; a slave's answer names its master, and every answer may carry the order topics.

        Raises:
            BrokerResponseError: A name, an id or the body is wrong, the place is taken, or a limit is exceeded.
        """
        _check(command.header)
        if self._waiting_bytes or len(command.body) > _INLINE_BYTES or _is_compressed(command):
            return self._decode_later(connection, command)
        return self._answer(self._decode(connection, command))

    def _decode(
        self, connection: Connection, command: Request, former: BrokerRegistration | None = None
    ) -> BrokerRegistration | None:
        """Read the body, on any thread, unless the former one was the same; ``None`` if its checksum is wrong."""
        crc = command.header.body_crc32
        if crc and zlib.crc32(command.body) & _CRC_BITS != crc:
            return None
        digest = _digest(command) if len(command.body) > _INLINE_BYTES else b""
        if former and former.digest == digest and former.broker == _identity(command.header):
            return replace(former, connection=connection)
        config = self.config
        limits = RegistrationLimits(
            config.max_registration_size, config.max_topics_per_broker, config.max_filter_servers_per_broker
        )
        return replace(_registration(connection, command, limits), digest=digest)

    def _decode_later(self, connection: Connection, command: Request) -> asyncio.Future[Command]:
        size, limit = len(command.body), self.config.max_waiting_registration_size
        if self._waiting_bytes + size > limit:
            text = (
                f"maxWaitingRegistrationSize: {self._waiting_bytes + size:,} bytes of waiting registrations exceed the "
                f"limit of {limit:,}; register again later or raise maxWaitingRegistrationSize."
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, text)
        held = copy(command)
        held.body = bytes(command.body)  # the connection reuses its buffer
        self._waiting_bytes += size
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Command] = loop.create_future()
        live = self.manager.brokers.live.get(command.header.broker_addr)
        former = None if live is None else live.registration
        decoding = loop.run_in_executor(self.decoder, self._decode, connection, held, former)
        decoding.add_done_callback(partial(self._decoded, connection, size, answer))
        return answer

    def _decoded(
        self,
        connection: Connection,
        size: int,
        answer: asyncio.Future[Command],
        decoding: asyncio.Future[BrokerRegistration | None],
    ) -> None:
        self._waiting_bytes -= size
        if decoding.cancelled() or not connection.is_open:
            answer.cancel()
            return
        failure = decoding.exception()  # not raised here: its traceback would keep the body until a garbage collection
        if failure is not None:
            answer.set_exception(failure)
            return
        try:
            answer.set_result(self._answer(decoding.result()))
        except Exception as error:  # noqa: BLE001 - answered like a handler's error
            answer.set_exception(error)

    def _answer(self, received: BrokerRegistration | None) -> Command:
        if received is None:
            return response(ResponseCode.SYSTEM_ERROR, "crc32 not match", RegisterBrokerResponseHeader())
        result = self.manager.register_broker(received)
        if result is None:
            return response(ResponseCode.SYSTEM_ERROR, "register broker failed", RegisterBrokerResponseHeader())
        answer = RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_addr, master_addr=result.master_addr)
        return response(header=answer, body=self._order_topics())

    def _order_topics(self) -> bytes:
        if not self.config.return_order_topic_config_to_broker:
            return b""
        return self.kv_configs.encoded_order_topics()

    @answers(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader, Audience.BROKER)
    def unregister_broker(
        self, connection: Connection, command: RemotingCommand[UnRegisterBrokerRequestHeader]
    ) -> Command:
        """Remove the broker with a name and an address in a cluster; an unknown one is not an error.

        Raises:
            BrokerResponseError: The broker is alive, and the request comes from another host.
        """
        header = command.header
        self.manager.unregister_broker(header.cluster_name, header.broker_addr, header.broker_name, connection)
        return response()

    @answers(RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequestHeader, Audience.BROKER)
    def query_data_version(
        self, connection: Connection, command: RemotingCommand[QueryDataVersionRequestHeader]
    ) -> Command:
        """Return this server's version of a broker's tables, and note that the broker is alive.

        Raises:
            BrokerResponseError: The body is not a DataVersion.
        """
        where = (command.header.cluster_name, command.header.broker_addr)
        asked = read_body(command.body, DataVersion, largest=_LARGEST_VERSION) if command.body else None
        changed = self.manager.is_broker_topic_config_changed(*where, asked)
        self.manager.update_broker_info_update_timestamp(*where, connection)
        known = self.manager.data_version(*where)
        header = QueryDataVersionResponseHeader(changed=changed)
        return response(header=header, body=b"" if known is None else known.encode())

    @answers(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader, Audience.BROKER)
    def broker_heartbeat(
        self, connection: Connection, command: RemotingCommand[BrokerHeartbeatRequestHeader]
    ) -> Command:
        """Note that a broker is alive; an unregistered broker is not an error."""
        header = command.header
        self.manager.update_broker_info_update_timestamp(header.cluster_name, header.broker_addr, connection)
        return response()

    @answers(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader, Audience.BROKER)
    def get_broker_member_group(
        self, connection: Connection, command: RemotingCommand[GetBrokerMemberGroupRequestHeader]
    ) -> Command:
        """Return the addresses of a broker name in a cluster by id, none for an unknown name."""
        header = command.header
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self.manager.brokers.addresses(header.cluster_name, header.broker_name),
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return response(ResponseCode.SUCCESS, _REMARK, body=body.encode())


def _check(header: RegisterBrokerRequestHeader) -> None:
    """Check the names, id and timeout of a registration.

    Raises:
        BrokerResponseError: A name, the id or the timeout is out of range; the text names the range.
    """
    check_broker_name("clusterName", header.cluster_name)
    check_broker_name("brokerName", header.broker_name)
    check_address(header.broker_addr)
    if header.ha_server_addr:
        check_key("haServerAddr", header.ha_server_addr)
    if header.broker_id < 0:
        raise BrokerResponseError(
            ResponseCode.INVALID_PARAMETER, f"the brokerId {header.broker_id} is not allowed; use 0 or more"
        )
    timeout = header.heartbeat_timeout_millis
    if timeout is not None and not 0 < timeout <= _MAX_HEARTBEAT_TIMEOUT_MS:
        text = f"the heartbeatTimeoutMillis {timeout} is not allowed; use 1 to {_MAX_HEARTBEAT_TIMEOUT_MS}"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, text)


def _registration(connection: Connection, command: Request, limits: RegistrationLimits) -> BrokerRegistration:
    """Decode the registration in a request.

    Raises:
        BrokerResponseError: The body cannot be read, or exceeds a limit.
    """
    header = command.header
    try:
        body = _body(command, limits)
    except CodecError as error:
        raise BrokerResponseError(
            ResponseCode.SYSTEM_ERROR, f"the body of REGISTER_BROKER cannot be read: {error}"
        ) from error
    for server in body.filter_server_list:
        check_key("filterServerList", server)
    return registration_of(_identity(header), body, connection)


def _identity(header: RegisterBrokerRequestHeader) -> BrokerIdentity:
    return BrokerIdentity(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_addr=header.broker_addr,
        broker_id=header.broker_id,
        ha_server_addr=header.ha_server_addr,
        heartbeat_timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
    )


def _digest(command: Request) -> bytes:
    return blake2b(command.body, key=b"%d %d" % (command.version, command.header.compressed)).digest()


def _is_compressed(command: Request) -> bool:
    return bool(command.body) and (command.header.compressed or command.body[0] == ZLIB_MARK)


def _body(command: Request, limits: RegistrationLimits) -> RegisterBrokerBody:
    if not command.body:
        return RegisterBrokerBody()
    if command.version < VERSION_3_0_11:
        # Such old brokers send only their topics.
        whole = b'{"topicConfigSerializeWrapper":%b}' % bytes(command.body)
        return RegisterBrokerBody.decode_within(whole, limits)
    if _is_compressed(command):
        return RegisterBrokerBody.decode_compressed(command.body, command.version, limits)
    return RegisterBrokerBody.decode_within(command.body, limits)
