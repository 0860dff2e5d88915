"""Body of REGISTER_BROKER (org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody).

Plain JSON, or with ``compressed=true`` one zlib stream of

    int32 length   DataVersion as JSON
    int32 count    then for each topic: int32 length, TopicConfig as text
    int32 length   list of filter servers as JSON
    int32 count    then for each static topic: int32 length, TopicQueueMappingInfo as JSON   (from 5.0.0 on)

Name servers decode these bodies on a thread while they serve others, and anyone may send one. So the content is counted
before memory is taken for it, and no step holds the interpreter for long.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Self

import msgspec

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import (
    Buffer,
    DataVersion,
    RemotingSerializable,
    body_from,
    decode_body,
)
from rocketbroker.codec.remoting.bodies.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from rocketbroker.common.errors import CodecError

_INT = Struct(">i")
# MQVersion.Version.V5_0_0.ordinal()
V5_0_0 = 413
# A topic is an object with another one, its attributes; together they have 10 commas and braces.
_OBJECTS_OF_TOPIC = 2
_VALUES_OF_TOPIC = 16
# Dialects other than JSON are decoded in Python, or twice.
_LENIENT_VALUES_OF_TOPIC = 4
_VALUES_BESIDES = 1_024
_LARGEST_PART = 1 << 18


@dataclass(frozen=True, slots=True)
class RegistrationLimits:
    """Limits of a registration: bytes (maxRegistrationSize), topics and filter servers (max…PerBroker)."""

    max_size: int = 32 << 20
    max_topics: int = 100_000
    max_filter_servers: int = 16

    def check_size(self, size: int) -> None:
        """Raise CodecError if a body has more bytes than allowed."""
        self._check("maxRegistrationSize", size, self.max_size, "bytes")

    def check_topics(self, count: int) -> None:
        """Raise CodecError if there are more topics than allowed."""
        self._check("maxTopicsPerBroker", count, self.max_topics, "topics")

    def check_filter_servers(self, count: int) -> None:
        """Raise CodecError if there are more filter servers than allowed."""
        self._check("maxFilterServersPerBroker", count, self.max_filter_servers, "filter servers")

    def check_values(self, data: Buffer, values_of_topic: int = _VALUES_OF_TOPIC) -> None:
        """Raise CodecError if there are more commas and brackets than the allowed topics have."""
        text = bytes(data)
        objects = text.count(b"{")
        most = _OBJECTS_OF_TOPIC * self.max_topics + _VALUES_BESIDES
        self._check("maxTopicsPerBroker", objects, most, f"JSON objects ({_OBJECTS_OF_TOPIC} a topic)")
        values = objects + text.count(b",") + text.count(b"[")
        most = values_of_topic * self.max_topics + _VALUES_BESIDES
        self._check("maxTopicsPerBroker", values, most, f"JSON values ({values_of_topic} a topic)")

    @staticmethod
    def _check(setting: str, value: int, limit: int, what: str) -> None:
        if value > limit:
            raise CodecError(
                f"{setting}: {value:,} {what} exceed the limit of {limit:,}; send fewer or raise {setting}"
            )


class _Wrapper(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, msgspec.Raw] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, msgspec.Raw] = {}
    topic_queue_mapping_detail_map: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class _Parts(msgspec.Struct, rename="camel"):
    """Body with encoded topics: decoding them all at once would hold the interpreter for 0.1 s."""

    topic_config_serialize_wrapper: _Wrapper = msgspec.field(default_factory=_Wrapper)
    filter_server_list: list[str] = []


_decode_parts = msgspec.json.Decoder(_Parts, strict=False).decode


class RegisterBrokerBody(RemotingSerializable):
    """Topics of a broker in its registration at a name server."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = msgspec.field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = []

    @classmethod
    def decode_within(cls, body: Buffer, limits: RegistrationLimits) -> Self:
        """Decode the JSON of an untrusted peer, in any of the dialects that brokers write.

        Raises:
            CodecError: It is not such a body, or exceeds a limit; the text names it.
        """
        limits.check_size(len(body))
        limits.check_values(body)
        try:
            parts = _decode_parts(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            limits.check_values(body, _LENIENT_VALUES_OF_TOPIC)
            decoded = body_from(fastjson.loads_lenient(body), cls)
        else:
            decoded = cls._of_parts(parts, limits)
        limits.check_topics(len(decoded.topic_config_serialize_wrapper.topic_config_table))
        limits.check_filter_servers(len(decoded.filter_server_list))
        return decoded

    @classmethod
    def _of_parts(cls, parts: _Parts, limits: RegistrationLimits) -> Self:
        wrapper = parts.topic_config_serialize_wrapper
        limits.check_topics(len(wrapper.topic_config_table))
        infos, details = wrapper.topic_queue_mapping_info_map, wrapper.topic_queue_mapping_detail_map
        whole = TopicConfigAndMappingSerializeWrapper(
            {name: decode_body(memoryview(topic), TopicConfig) for name, topic in wrapper.topic_config_table.items()},
            wrapper.data_version,
            wrapper.mapping_data_version,
            {name: TopicQueueMappingInfo.decode(_bounded(info)) for name, info in infos.items()},
            decode_body(_bounded(details), dict[str, dict[str, Any]]),
        )
        return cls(whole, parts.filter_server_list)

    def encode_compressed(self) -> bytes:
        """Return the zlib stream, with the static topics of 5.0.0 at its end; older name servers ignore them."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [config.encode_text().encode() for config in wrapper.topic_config_table.values()]
        mappings = [info.encode() for info in wrapper.topic_queue_mapping_info_map.values()]
        parts = [_sized(wrapper.data_version.encode()), _INT.pack(len(topics)), *map(_sized, topics)]
        parts += [_sized(fastjson.dumps(self.filter_server_list)), _INT.pack(len(mappings)), *map(_sized, mappings)]
        return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)

    @classmethod
    def decode_compressed(cls, body: Buffer, broker_version: int, limits: RegistrationLimits | None = None) -> Self:
        """Decode the zlib stream of a broker of that version (an MQVersion ordinal).

        Raises:
            CodecError: The stream or one of its parts is broken, or exceeds a limit.
        """
        limits = limits or RegistrationLimits()
        data = _inflate(body, limits)
        limits.check_values(data)
        reader = _Reader(data, limits)
        version = DataVersion.decode(reader.block())
        configs = [TopicConfig.decode_text(_text(block)) for block in reader.blocks()]
        servers = decode_body(reader.block(), list[str])
        limits.check_filter_servers(len(servers))
        blocks = reader.blocks() if broker_version >= V5_0_0 else iter(())
        infos = [TopicQueueMappingInfo.decode(_bounded(block)) for block in blocks]
        wrapper = TopicConfigAndMappingSerializeWrapper(
            {config.topic_name: config for config in configs},
            version,
            topic_queue_mapping_info_map={_topic_of(info): info for info in infos},
        )
        return cls(wrapper, servers)


def _bounded(part: Buffer) -> memoryview:
    """Check the length of a part: 10,000 queues of a static topic take 120,000 bytes, and no broker sends details."""
    view = memoryview(part)
    if len(view) > _LARGEST_PART:
        text = f"RegisterBrokerBody: {len(view):,} bytes of one static topic or of details exceed the limit"
        raise CodecError(f"{text} of {_LARGEST_PART:,}")
    return view


def _sized(block: bytes) -> bytes:
    return _INT.pack(len(block)) + block


def _text(block: bytes) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as broken:
        raise CodecError(f"RegisterBrokerBody: a topic is not UTF-8: {broken.reason}") from None


def _topic_of(info: TopicQueueMappingInfo) -> str:
    if info.topic is None:
        raise CodecError("RegisterBrokerBody: a TopicQueueMappingInfo has no topic")
    return info.topic


def _inflate(body: Buffer, limits: RegistrationLimits) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, limits.max_size + 1)
    except zlib.error as broken:
        raise CodecError(
            f"RegisterBrokerBody: compressed is true, but the body is not a zlib stream: {broken}"
        ) from None
    limits.check_size(len(data))
    if not stream.eof:
        raise CodecError("RegisterBrokerBody: the zlib stream ends early")
    return data


class _Reader:
    """Reads numbers and blocks from the inflated bytes."""

    def __init__(self, data: bytes, limits: RegistrationLimits) -> None:
        self._data = data
        self._limits = limits
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
            raise CodecError(
                f"RegisterBrokerBody: a part at {self._at} claims {length} bytes, beyond the end at {len(self._data)}"
            )
        block = self._data[self._at : end]
        self._at = end
        return block

    def blocks(self) -> Iterator[bytes]:
        count = self.number()
        self._limits.check_topics(count)
        for _ in range(count):
            yield self.block()
