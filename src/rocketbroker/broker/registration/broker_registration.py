"""Registration, heartbeats and the members of the broker's name (org.apache.rocketmq.broker.out)."""

import asyncio
import logging
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from rocketbroker.broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import (
    MASTER_ID,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
)
from rocketbroker.codec.remoting.bodies.topic_config import (
    PERM_READ_WRITE,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from rocketbroker.codec.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import CodecError, RemotingError, RemotingTimeoutError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient, split_address

log = logging.getLogger(__name__)

# Addresses by broker id.
Members = dict[int, str]


async def fetch_members(
    client: RemotingClient, config: BrokerConfig, name_server: str, timeout_s: float = 3.0
) -> Members:
    """Return the live brokers of this broker's name, as one name server knows them.

    Args:
        client: sends the request.
        config: name of broker and cluster.
        name_server: address of the name server.
        timeout_s: limit of connecting and asking together.

    Raises:
        RemotingError: The name server does not answer.
        CodecError: It rejects the request, or answers something else.
    """
    header = GetBrokerMemberGroupRequestHeader(config.broker_cluster_name, config.broker_name)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.invoke(name_server, request(RequestCode.GET_BROKER_MEMBER_GROUP, header), timeout_s)
    except TimeoutError:
        raise RemotingTimeoutError(f"{name_server} does not answer within {timeout_s:g} s") from None
    if answer.code != ResponseCode.SUCCESS:
        raise CodecError(f"GET_BROKER_MEMBER_GROUP is answered by {answer.code} {(answer.remark or '')[:200]}")
    group = GetBrokerMemberGroupResponseBody.decode(answer.body or b"{}").broker_member_group
    return {} if group is None else dict(group.broker_addrs)


_PERIOD_S: Final = 5.0
_PAUSE_S: Final = 0.2


class KnownSlaves:
    """Asks each name server for the brokers of this broker's name. The last answer of a dead one stays.

    Attributes:
        hosts: addresses of the slaves, one for each slave.
    """

    def __init__(self, config: BrokerConfig, client: RemotingClient, name_servers: Callable[[], list[str]]) -> None:
        self._config = config
        self._client = client
        self._name_servers = name_servers
        self._tasks = TaskOwner("KnownSlaves")
        self._soon = asyncio.Event()
        # Hosts by the addresses of slaves, by name server.
        self._answers: dict[str, dict[str, str]] = {}
        self.hosts: list[str] = []

    async def start(self) -> None:
        self._tasks.forever(self._run, "ask")

    async def stop(self) -> None:
        """Ask no more."""
        await self._tasks.stop()

    def look_again(self) -> None:
        """Ask soon."""
        self._soon.set()

    async def _run(self) -> None:
        while True:
            self._soon.clear()
            await asyncio.gather(*map(self._ask, self._name_servers()))
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(_PERIOD_S):
                    await self._soon.wait()
            except TimeoutError:
                continue

    async def _ask(self, server: str) -> None:
        try:
            addresses = await fetch_members(self._client, self._config, server)
        except (RemotingError, CodecError) as error:
            log.debug("name server %s does not name the slaves of this broker: %s", server, error)
            return
        slaves = [address for number, address in addresses.items() if number != MASTER_ID]
        self._answers[server] = {address: await self._resolve(address) for address in slaves}
        # At once: other name servers may be frozen.
        known = dict(item for each in self._name_servers() for item in self._answers.get(each, {}).items())
        self.hosts = [known[address] for address in sorted(known)]

    async def _resolve(self, address: str) -> str:
        """Return the IP address of a broker, or the host as it is if it has none."""
        try:
            host, port = split_address(address)
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (RemotingError, OSError, UnicodeError):
            return address
        return str(found[0][4][0])


# Requests of a broker to name servers (BrokerController.registerBrokerAll, BrokerOuterAPI).
#
# A registration in parts, or of changed topics, leaves the broker's other topics alone. A name server with
# ``deleteTopicWithBrokerRegistration=true`` takes it for complete and would drop them, except for a broker with static
# topics. So such a registration names one static topic, which does not exist.

# Topics in one part of a registration: about 1 MB, of 16 MiB that a frame may have; encoding takes the loop 20 ms.
MOST_IN_PART: Final = 5_000
# Bytes of a body above which a part is split in halves: attributes may be long.
MOST_BYTES: Final = 8 << 20
_NOT_ALL: Final = "rocketbroker-not-all-topics"


class BrokerRegistration:
    """Builds the requests of a broker to name servers from its current settings and topics."""

    def __init__(
        self, config: BrokerConfig, store_config: MessageStoreConfig, topic_configs: TopicConfigManager
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._topic_configs = topic_configs
        # Cached: the whole table takes long to encode, and goes to several name servers each time.
        self._whole: tuple[object, list[bytes]] = (None, [])

    @property
    def broker_addr(self) -> str:
        """Address of the broker for clients."""
        return join_address(self._config.broker_ip1, self._config.listen_port)

    @property
    def ha_server_addr(self) -> str:
        """Address of the broker for slaves."""
        return join_address(self._config.broker_ip2, self._store_config.ha_listen_port)

    def whole(self) -> Iterator[Command]:
        """Yield REGISTER_BROKER with all topics, in as many parts as needed."""
        config, version = self._config, self._topic_configs.data_version
        most = config.split_registration_size if config.enable_split_registration else MOST_IN_PART
        key = (version.copy(), config.broker_permission, config.compressed_register, most)
        if self._whole[0] != key:
            yield from self._rebuilt(key, version.copy(), most)
            return
        for body in self._whole[1]:
            yield self._register(body)

    def _rebuilt(self, key: object, version: DataVersion, most: int) -> Iterator[Command]:
        parts = _parts(list(self._topic_configs.topics.values()), most)
        bodies: list[bytes] = []
        for number, topics in enumerate(parts, 1):
            # A name server accepts changed topics only with another version; the last part has the true one.
            part_version = DataVersion(version.timestamp, version.counter + number - len(parts), version.state_version)
            for body in self._bodies(topics, part_version, is_all=len(parts) == 1):
                bodies.append(body)
                yield self._register(body)
        self._whole = key, bodies

    def increment(self, change: TopicChange) -> list[Command]:
        """Return REGISTER_BROKER with the topics that were created or changed."""
        parts = _parts(change.topics, MOST_IN_PART)
        return [self._register(body) for topics in parts for body in self._bodies(topics, change.version)]

    def single(self, topic: TopicConfig) -> Command:
        """Return REGISTER_TOPIC_IN_NAMESRV with one topic (enableSingleTopicRegister)."""
        topic = self._permitted(topic)
        queues = QueueData(
            self._config.broker_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag
        )
        header = RegisterTopicRequestHeader(topic.topic_name)
        return request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, TopicRouteData(queue_datas=[queues]).encode())

    def query_data_version(self) -> Command:
        """Return QUERY_DATA_VERSION, which asks if the name server has the current topics."""
        config = self._config
        header = QueryDataVersionRequestHeader(
            config.broker_name, self.broker_addr, config.broker_cluster_name, config.broker_id
        )
        return request(RequestCode.QUERY_DATA_VERSION, header, self._topic_configs.data_version.encode())

    def unregister(self) -> Command:
        """Return UNREGISTER_BROKER."""
        config = self._config
        header = UnRegisterBrokerRequestHeader(
            config.broker_name, self.broker_addr, config.broker_cluster_name, config.broker_id
        )
        return request(RequestCode.UNREGISTER_BROKER, header)

    def heartbeat(self) -> Command:
        """Return BROKER_HEARTBEAT."""
        config = self._config
        header = BrokerHeartbeatRequestHeader(config.broker_cluster_name, self.broker_addr, config.broker_name)
        return request(RequestCode.BROKER_HEARTBEAT, header)

    def _register(self, body: bytes) -> Command:
        config = self._config
        acting = config.enable_slave_acting_master
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.broker_addr,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self.ha_server_addr,
            broker_id=config.broker_id,
            heartbeat_timeout_millis=config.broker_not_active_timeout_millis if acting else None,
            enable_acting_master=acting,
            compressed=config.compressed_register,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, header, body)

    def _bodies(self, topics: Sequence[TopicConfig], version: DataVersion, *, is_all: bool = False) -> list[bytes]:
        body = self._body(topics, version, is_all=is_all)
        if len(body) <= MOST_BYTES or len(topics) == 1:
            return [body]
        half = len(topics) // 2
        return self._bodies(topics[:half], version) + self._bodies(topics[half:], version)

    def _body(self, topics: Iterable[TopicConfig], version: DataVersion, *, is_all: bool) -> bytes:
        mappings = {} if is_all else {_NOT_ALL: TopicQueueMappingInfo(self._config.broker_name, topic=_NOT_ALL)}
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={topic.topic_name: self._permitted(topic) for topic in topics},
            data_version=version,
            mapping_data_version=DataVersion(timestamp=version.timestamp),
            topic_queue_mapping_info_map=mappings,
        )
        body = RegisterBrokerBody(wrapper)
        return body.encode_compressed() if self._config.compressed_register else body.encode()

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        """Return the topic with its permissions limited to those of the broker."""
        permission = self._config.broker_permission
        if permission == PERM_READ_WRITE:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & permission)


def _parts(topics: Sequence[TopicConfig], most: int) -> list[Sequence[TopicConfig]]:
    return [topics[start : start + most] for start in range(0, len(topics), most)]


class BrokerHeartbeat:
    """Sends BROKER_HEARTBEAT with ``enableSlaveActingMaster``, so that a dead master is noticed within seconds.

    A name server forgets a broker whose connection closes, and closes that of a silent one: then all is registered
    again.

    Args:
        config: ``enableSlaveActingMaster``, ``brokerHeartbeatInterval``.
        name_servers: returns the name servers that this broker is registered at.
        register: registers this broker again.
    """

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        registration: BrokerRegistration,
        name_servers: Callable[[], list[str]],
        register: Callable[[], object],
    ) -> None:
        self._config = config
        self._client = client
        self._registration = registration
        self._name_servers = name_servers
        self._register = register
        self._tasks = TaskOwner("BrokerHeartbeat")

    async def start(self) -> None:
        if self._config.enable_slave_acting_master:
            self._tasks.every(self._config.broker_heartbeat_interval / 1000, self._send_all, "send")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _send_all(self) -> None:
        await asyncio.gather(*map(self._send, self._name_servers()))

    async def _send(self, name_server: str) -> None:
        if not self._client.is_connected(name_server):
            self._register()
            return
        try:
            await self._client.invoke_oneway(name_server, self._registration.heartbeat())
        except RemotingError as error:
            log.debug("name server %s gets no heartbeat: %s", name_server, error)
