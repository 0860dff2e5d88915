"""Targets of fuzzing: each decoder, recorded input for it, the errors it may raise, and its greatest cost.

A target raises for anything that must not be: another error than those documented, or an answer that contradicts
itself. It returns whether the input was taken.
"""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message import message_properties
from rocketbroker.codec.message.message_batch import encode_batch, split_batch
from rocketbroker.codec.message.message_decoder import decode_messages, decode_record, peek
from rocketbroker.codec.message.message_id import decode_message_id, decode_unique_id
from rocketbroker.codec.message.message_properties import decode_properties, find_properties, get_property
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import HeartbeatData
from rocketbroker.codec.remoting.bodies.offset import DelayOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.register_broker_body import V5_0_0, RegisterBrokerBody
from rocketbroker.codec.remoting.frame import (
    check_length,
    decode_frame,
    decode_rocketmq_header,
    encode_frame,
    split_frame,
)
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.storefile.checkpoint_layout import decode_checkpoint
from rocketbroker.codec.storefile.config_tables import decode_table
from rocketbroker.codec.storefile.index_file_layout import decode_header
from rocketbroker.codec.storefile.store_file import file_name_to_offset, offset_to_file_name
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.config.properties_file import parse_properties
from rocketbroker.common.errors import CodecError, ConfigError, RemoteProtocolError
from tests.support import golden_bodies, golden_headers, golden_store
from tests.support.fakes import FakeClock
from tests.support.golden_frames import frames, samples

KIB = 1024


class Target(NamedTuple):
    """A decoder under test.

    Args:
        name: what it is.
        bases: recorded input that it takes.
        run: gives whether it took the input; raises for what must not be.
        share: its part of the cases of a long run, in thousandths.
        bytes_each: bytes that it may hold at once for each byte of input, beside 256 KiB.
        calls_each: Python and C calls that it may make for each byte of input, beside 4,000.
    """

    name: str
    bases: tuple[bytes, ...]
    run: Callable[[bytes], bool]
    share: int
    bytes_each: int = 64
    calls_each: int = 8

    def most_bytes(self, data: bytes) -> int:
        """Return the memory limit of one input in bytes."""
        return 256 * KIB + self.bytes_each * len(data)

    def most_calls(self, data: bytes) -> int:
        """Return the limit of calls for one input."""
        return 4000 + self.calls_each * len(data)


def _taken(function: Callable[..., Any], *arguments: Any, errors: Any = CodecError) -> bool:
    try:
        function(*arguments)
    except errors:
        return False
    return True


# -- the wire


def _frame(data: bytes) -> bool:
    view = memoryview(data)
    try:
        check_length(int.from_bytes(data[:4], "big", signed=True))
        command = decode_frame(view[4:])
    except RemoteProtocolError:
        return False
    command.body = bytes(command.body)
    again = decode_frame(memoryview(encode_frame(command))[4:])
    assert (again.code, again.header, again.flag, again.opaque, bytes(again.body)) == (
        command.code,
        command.header,
        command.flag,
        command.opaque,
        command.body,
    )
    return True


def _binary_header(data: bytes) -> bool:
    return _taken(decode_rocketmq_header, memoryview(data), errors=RemoteProtocolError)


@cache
def _routes() -> dict[int, Route]:
    return {code: Route(code, lambda *_: b"", kind) for code, kind in golden_headers.REQUESTS.items()}


def _typed_header(data: bytes) -> bool:
    """Return the typed header of a frame's own code, of any code where it has none."""
    try:
        serialize_type, header, _ = split_frame(memoryview(data)[4:])
        code = decode_frame(memoryview(data)[4:]).code
    except RemoteProtocolError:
        return False
    routes = _routes()
    route = routes.get(code) or list(routes.values())[crc32(data) % len(routes)]
    return _taken(route.decode, serialize_type, header, errors=(RemoteProtocolError, CodecError))


def _bodies(data: bytes) -> bool:
    """As a heartbeat, which has dialects, and as another kind of body."""
    kinds = _body_kinds()
    taken = [_taken(kind.decode, data) for kind in (HeartbeatData, kinds[crc32(data) % len(kinds)])]
    return any(taken)


@cache
def _body_kinds() -> tuple[Any, ...]:
    return tuple({**golden_bodies.RESPONSES, **golden_bodies.REQUESTS}.values())


def _fastjson(data: bytes) -> bool:
    try:
        value = fastjson.loads(data)
    except CodecError:
        return False
    fastjson.dumps(value)
    return True


def _registration(data: bytes) -> bool:
    return _taken(RegisterBrokerBody.decode_compressed, data, V5_0_0)


# -- messages


def _properties(data: bytes) -> bool:
    pairs = decode_properties(data)
    text = data.decode("utf-8", "replace")
    tags, unique_key, keys, _ = find_properties(data)
    for name, found in (("TAGS", tags), ("UNIQ_KEY", unique_key), ("KEYS", keys)):
        assert (found or b"").decode("utf-8", "replace") == pairs.get(name, ""), text
        assert get_property(data, name.encode()) == found, text
    replaced = message_properties.replace_property(data, b"KEYS", b"v")
    assert decode_properties(replaced)["KEYS"] == "v"
    without = message_properties.remove_property(data, b"TAGS")
    assert "TAGS" not in decode_properties(without)
    return bool(pairs)


def _batch(data: bytes) -> bool:
    try:
        parts = split_batch(data)
    except CodecError:
        return False
    # All bytes are in the parts but magic code and CRC of each message, which nobody reads.
    assert len(encode_batch(parts.messages())) == len(data)
    return True


def _records(data: bytes) -> bool:
    try:
        peek(data)
        message = decode_record(data, check_crc=True)
    except CodecError:
        _taken(decode_record, data)
        _taken(lambda: decode_messages(data, decompress=False))
        return False
    assert crc32(message.body) & 0x7FFFFFFF == message.body_crc
    assert message.store_size <= len(data)
    return True


def _compressed(data: bytes) -> bool:
    return _taken(decode_messages, data)


def _ids(data: bytes) -> bool:
    text = data.decode("utf-8", "replace")
    return any([_taken(decode_message_id, text), _taken(decode_unique_id, text)])


# -- files


def _small_files(data: bytes) -> bool:
    taken = [_taken(decode_header, data), _taken(decode_checkpoint, data)]
    try:
        name = data[:20].decode("ascii", "replace")
        assert offset_to_file_name(file_name_to_offset(name)) == name
        taken.append(True)
    except CodecError:
        taken.append(False)
    return any(taken)


@cache
def _tables() -> tuple[Any, ...]:
    nowhere, clock, config = Path("/nonexistent"), FakeClock(), BrokerConfig()
    return (
        TopicConfigManager(nowhere, config, clock),
        SubscriptionGroupManager(nowhere, config, clock),
        ConsumerOffsetManager(nowhere, clock),
    )


def _config_files(data: bytes) -> bool:
    taken = [_taken(table.parse, data) for table in _tables()]
    return any(taken) or _taken(decode_table, "delayOffset.json", data, DelayOffsetSerializeWrapper)


def _settings(data: bytes) -> bool:
    return _taken(parse_properties, data.decode("utf-8", "surrogateescape"), "x.conf", errors=ConfigError)


# -- recorded input


def _unlike(inputs: Iterable[bytes], longest: int = 4000, most: int = 60) -> tuple[bytes, ...]:
    """Return some that differ in length, the short ones first: a byte of them counts more."""
    found = {len(data): data for data in inputs if 0 < len(data) <= longest}
    step = max(1, len(found) // most)
    return tuple(data for _, data in sorted(found.items()))[::step]


def _batches() -> tuple[bytes, ...]:
    recorded = [frame.body() for frame in frames() if frame.code == 320 and not frame.flag & 1]
    alike = encode_batch([(0, b"body", b"KEYS\x01k\x02")] * 5)
    unlike = encode_batch([(1, b"", b""), (-5, b"x" * 40, b"TAGS\x01t\x02"), (7, b"y", b"")])
    return (*_unlike(recorded), alike, unlike)


def _golden_properties() -> tuple[bytes, ...]:
    return _unlike(decode_record(record).properties_bytes for _, record in golden_store.records("clean"))


def _config_contents() -> tuple[bytes, ...]:
    names = [f"config/{name}.json" for name in ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")]
    return tuple(golden_store.files("clean")[name] for name in names)


@cache
def targets() -> dict[str, Target]:
    """Return all of them by name; shares are those of a thousand."""
    recorded = samples()
    bodies = [frame.body() for frame in recorded]
    json_bodies = _unlike(body for body in bodies if body[:1] == b"{")
    records = _unlike(record for _, record in golden_store.records("clean"))
    compressed = tuple(data for data in records if decode_record(data).sys_flag & 1)
    settings = ((golden_store.GOLDEN / "broker.conf").read_bytes(), b"a = \\u0041b\\\n  c\n# d\n!e\nf:g\n")
    small = tuple(
        data[:64] for name, data in golden_store.files("clean").items() if name.startswith(("index", "check"))
    )
    ids = (b"C0A8010100002A9F00000000000F4240", b"7F0000010007" + b"18B4AAC2" * 2 + b"0001", b"FE80" * 14)
    requests = _unlike(frame.data for frame in recorded if not frame.flag & 1 and frame.code in _routes())
    enough = tuple(body for body in json_bodies if _bodies(body))
    registrations = (_registration_body(),)
    return {
        target.name: target
        for target in (
            Target("frames", _unlike(frame.data for frame in recorded), _frame, 200, 200),
            Target("binary headers", _unlike(f.header() for f in recorded if f.binary), _binary_header, 100),
            Target("typed headers", requests, _typed_header, 120, 200),
            Target("properties", _golden_properties(), _properties, 100),
            Target("batches", _batches(), _batch, 100),
            Target("records", records, _records, 100),
            Target("compressed records", compressed, _compressed, 30, 2200),
            Target("bodies", enough, _bodies, 70, 400, 40),
            Target("fastjson", json_bodies, _fastjson, 60, 400, 40),
            Target("registrations", registrations, _registration, 20, 2200, 40),
            Target("ids", ids, _ids, 20),
            Target("small files", (*small, b"00000000000000065536"), _small_files, 30),
            Target("config files", _config_contents(), _config_files, 30, 600, 60),
            Target("settings", settings, _settings, 20, 600, 60),
        )
    }


def _registration_body() -> bytes:
    plain = golden_bodies.request_bodies(103)
    found = [body.data for body in plain if body.data[:1] == b"\x78"]
    if found:
        return found[0]
    wrapper = RegisterBrokerBody()
    return wrapper.encode_compressed()
