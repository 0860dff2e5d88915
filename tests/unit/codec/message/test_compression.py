"""Compressed bodies: recorded ones, spoilt ones and ones that would fill the memory."""

import hashlib
import sys
import tracemalloc
import zlib
from importlib import import_module

import pytest

from rocketbroker.codec.message.compression import compress, decompress
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.common.errors import CodecError
from tests.support import golden_store


def golden(sys_flag: int) -> tuple[bytes, str]:
    """Stored body and SHA-1 of what was sent, of the recorded message with this sysFlag."""
    stored = golden_store.manifest("clean")
    number = next(n for n, message in enumerate(stored["messages"]) if message["sysFlag"] == sys_flag)
    body = decode_record(golden_store.records("clean")[number][1]).body
    sent = next(s for s in stored["sent"] if s["msgId"] == stored["messages"][number]["uniqKey"])
    return body, sent["body_sha1_uncompressed"]


@pytest.mark.parametrize("sys_flag", [0x301, 0x101, 0x201])
def test_golden_bodies(sys_flag: int) -> None:
    body, sha1 = golden(sys_flag)
    unpacked = decompress(memoryview(body), sys_flag)
    assert hashlib.sha1(unpacked).hexdigest() == sha1
    assert decompress(body, sys_flag, max_size=len(unpacked)) == unpacked
    with pytest.raises(CodecError, match=f"more than the limit of {len(unpacked) - 1:,} bytes"):
        decompress(body, sys_flag, max_size=len(unpacked) - 1)


@pytest.mark.parametrize(("sys_flag", "what"), [(0x301, "zlib"), (0x101, "LZ4"), (0x201, "Zstandard")])
def test_spoilt_bodies(sys_flag: int, what: str) -> None:
    with pytest.raises(CodecError, match=f"body is not an? {what}"):
        decompress(b"not compressed at all", sys_flag)


@pytest.mark.parametrize("sys_flag", [0x301, 0x101, 0x201])
def test_a_body_cut_at_any_byte_is_rejected(sys_flag: int) -> None:
    body, _ = golden(sys_flag)
    for length in range(len(body)):
        with pytest.raises(CodecError):
            decompress(body[:length], sys_flag)


def test_old_clients_name_no_type_and_mean_zlib() -> None:
    assert decompress(compress(b"hello"), 0x1) == b"hello"


def test_a_type_nobody_knows() -> None:
    with pytest.raises(CodecError, match="compression type 7 is unknown"):
        decompress(b"", 0x701)


@pytest.mark.parametrize(
    ("module", "sys_flag", "package"), [("lz4.frame", 0x101, "lz4"), ("zstandard", 0x201, "zstandard")]
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, module: str, sys_flag: int, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CodecError, match=rf"need the package '{package}': pip install 'rocketbroker\[compression\]'"):
        decompress(b"", sys_flag)


def test_a_few_bytes_do_not_become_many() -> None:
    bomb = zlib.compress(bytes(10_000_000))
    with pytest.raises(CodecError, match="more than the limit of 1,000 bytes"):
        decompress(bomb, 0x301, max_size=1000)


def test_a_small_lz4_body_takes_little_memory() -> None:
    body, _ = golden(0x101)
    decompress(body, 0x101)
    tracemalloc.start()
    try:
        decompress(body, 0x101)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_an_lz4_body_that_comes_in_many_pieces() -> None:
    body = bytes(range(256)) * 5000
    packed = import_module("lz4.frame").compress(body)
    assert decompress(packed, 0x101) == body
    assert decompress(packed, 0x101, max_size=len(body)) == body
    with pytest.raises(CodecError, match=f"more than the limit of {len(body) - 1:,} bytes"):
        decompress(packed, 0x101, max_size=len(body) - 1)
    with pytest.raises(CodecError, match="is incomplete: its stream ends early"):
        decompress(packed[:-4000], 0x101)
