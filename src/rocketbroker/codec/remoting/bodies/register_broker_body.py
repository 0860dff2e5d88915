"""Body of REGISTER_BROKER (org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody).

Plain JSON, or with ``compressed=true`` one zlib stream of

    int32 length   DataVersion as JSON
    int32 count    then for each topic: int32 length, TopicConfig as text
    int32 length   list of filter servers as JSON
    int32 count    then for each static topic: int32 length, TopicQueueMappingInfo as JSON   (from 5.0.0 on)
"""

import zlib
from collections.abc import Iterable
from struct import Struct, error
from typing import Any, Self

import msgspec

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.remoting_serializable import Buffer, RemotingSerializable
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from rocketbroker.common.errors import CodecError

_INT = Struct(">i")
# MQVersion.Version.V5_0_0.ordinal()
V5_0_0 = 413
# A registration of a million topics has less; a small stream may claim to be terabytes.
MAX_INFLATED = 256 << 20


class RegisterBrokerBody(RemotingSerializable):
    """What a broker tells the name server about its topics."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = msgspec.field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = msgspec.field(default_factory=list)

    def encode_compressed(self) -> bytes:
        """The zlib stream, with the static topics that 5.0.0 added at its end (older name servers do not read on)."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [config.encode_text().encode() for config in wrapper.topic_config_table.values()]
        mappings = [fastjson.dumps(info) for info in wrapper.topic_queue_mapping_info_map.values()]
        parts = [_sized(wrapper.data_version.encode()), _INT.pack(len(topics)), *map(_sized, topics)]
        parts += [_sized(fastjson.dumps(self.filter_server_list)), _INT.pack(len(mappings)), *map(_sized, mappings)]
        return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)

    @classmethod
    def decode_compressed(cls, body: Buffer, broker_version: int) -> Self:
        """Read the zlib stream of a broker of that version (an MQVersion ordinal).

        Raises:
            CodecError: the stream or one of its parts is broken.
        """
        reader = _Reader(_inflate(body))
        version = DataVersion.decode(reader.block())
        configs = [TopicConfig.decode_text(_text(block)) for block in reader.blocks()]
        servers = fastjson.loads(reader.block())
        if not isinstance(servers, list):
            raise CodecError(f"RegisterBrokerBody: filterServerList is {type(servers).__name__}, not a list")
        infos = [fastjson.loads(block) for block in reader.blocks()] if broker_version >= V5_0_0 else []
        wrapper = TopicConfigAndMappingSerializeWrapper(
            {config.topic_name: config for config in configs},
            version,
            topic_queue_mapping_info_map={_topic_of(info): info for info in infos},
        )
        return cls(wrapper, [str(server) for server in servers])


def _sized(block: bytes) -> bytes:
    return _INT.pack(len(block)) + block


def _text(block: bytes) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as broken:
        raise CodecError(f"RegisterBrokerBody: a topic is not UTF-8: {broken.reason}") from None


def _topic_of(info: Any) -> str:
    topic = info.get("topic") if isinstance(info, dict) else None
    if not isinstance(topic, str):
        raise CodecError("RegisterBrokerBody: a TopicQueueMappingInfo has no topic")
    return topic


def _inflate(body: Buffer) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, MAX_INFLATED)
    except zlib.error as broken:
        raise CodecError(f"RegisterBrokerBody: no zlib stream ({broken}), though compressed is true") from None
    if not stream.eof:
        over = len(data) >= MAX_INFLATED
        cause = f"has more than the {MAX_INFLATED} bytes allowed" if over else "ends early"
        raise CodecError(f"RegisterBrokerBody: the zlib stream {cause}")
    return data


class _Reader:
    """Reads numbers and blocks from the inflated bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        try:
            (number,) = _INT.unpack_from(self._data, self._at)
        except error:
            raise CodecError(f"RegisterBrokerBody ends at byte {len(self._data)}, before a length") from None
        self._at += _INT.size
        return int(number)

    def block(self) -> bytes:
        length = self.number()
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise CodecError(f"RegisterBrokerBody: {length} bytes at {self._at} claimed, of {len(self._data)}")
        block = self._data[self._at : end]
        self._at = end
        return block

    def blocks(self) -> Iterable[bytes]:
        for _ in range(self.number()):
            yield self.block()
