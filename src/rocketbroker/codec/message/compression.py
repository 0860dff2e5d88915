"""Compressed bodies (org.apache.rocketmq.common.compression.CompressorFactory).

    sysFlag bits 8-10   0, 3 zlib stream (RFC 1950)     1 LZ4 frame     2 Zstandard frame

zlib is Python's own; the packages ``lz4`` and ``zstandard``, of the extra ``compression``, are imported for the first
such body.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from types import ModuleType
from typing import Final, cast

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_const import (
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
    compression_type,
)
from rocketbroker.common.errors import CodecError

#: Limit of a decompressed body in bytes: a few kilobytes of compressed zeros would otherwise fill the memory.
MAX_DECOMPRESSED_SIZE: Final = 64 << 20

# The library cannot stop at a size. A block has at least 4 bytes and yields at most 128 KiB, so a piece yields 32 MiB.
_ZSTD_PIECE: Final = 1024
# The library allocates memory for the whole possible output, even for a frame of a few bytes.
_LZ4_PIECE: Final = 256 * 1024


def decompress(body: ReadableBuffer, sys_flag: int, *, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """Decompress ``body`` as ``sys_flag`` says; raise :class:`CodecError` on failure, or beyond ``max_size`` bytes."""
    kind = compression_type(sys_flag)
    if kind in {0, COMPRESSION_ZLIB_TYPE}:
        return _decompress_zlib(body, max_size)
    if kind == COMPRESSION_LZ4_TYPE:
        return _decompress_lz4(body, max_size)
    if kind == COMPRESSION_ZSTD_TYPE:
        return _decompress_zstd(body, max_size)
    raise CodecError(f"compression type {kind >> 8} is unknown: 0 and 3 (zlib), 1 (LZ4), 2 (Zstandard) are known")


def compress(body: ReadableBuffer, level: int = 5, kind: int = COMPRESSION_ZLIB_TYPE) -> bytes:
    """Compress ``body``; its message takes ``COMPRESSED_FLAG`` and ``kind`` as sysFlag bits. Every client reads zlib.

    Raises:
        CodecError: The package of this kind is missing.
    """
    if kind == COMPRESSION_LZ4_TYPE:
        return cast("bytes", _library("lz4.frame", "lz4", "LZ4").compress(bytes(body), compression_level=level))
    if kind == COMPRESSION_ZSTD_TYPE:
        compressor = _library("zstandard", "zstandard", "Zstandard").ZstdCompressor(level=level)
        return cast("bytes", compressor.compress(bytes(body)))
    return zlib.compress(body, level)


def _decompress_zlib(body: ReadableBuffer, max_size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, max_size + 1)
    except zlib.error as error:
        raise CodecError(f"body is not a zlib stream: {error}") from error
    _check(len(data), max_size, complete=stream.eof)
    return data


def _decompress_lz4(body: ReadableBuffer, max_size: int) -> bytes:
    stream = _library("lz4.frame", "lz4", "LZ4").LZ4FrameDecompressor()
    data = bytearray()
    piece: ReadableBuffer = bytes(body)
    try:
        while True:
            data += stream.decompress(piece, max_length=_LZ4_PIECE)
            if stream.eof or stream.needs_input or len(data) > max_size:
                break
            piece = b""
    except (RuntimeError, EOFError) as error:
        raise CodecError(f"body is not an LZ4 frame: {error}") from error
    _check(len(data), max_size, complete=stream.eof)
    return bytes(data)


def _decompress_zstd(body: ReadableBuffer, max_size: int) -> bytes:
    zstandard = _library("zstandard", "zstandard", "Zstandard")
    stream = zstandard.ZstdDecompressor().decompressobj()
    data = bytearray()
    try:
        for start in range(0, len(body), _ZSTD_PIECE):
            data += stream.decompress(body[start : start + _ZSTD_PIECE])
            if stream.eof or len(data) > max_size:
                break
    except zstandard.ZstdError as error:
        raise CodecError(f"body is not a Zstandard frame: {error}") from error
    _check(len(data), max_size, complete=stream.eof)
    return bytes(data)


def _library(module: str, package: str, what: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise CodecError(
            f"bodies compressed with {what} need the package {package!r}: pip install 'rocketbroker[compression]'"
        ) from error


def _check(size: int, max_size: int, *, complete: bool) -> None:
    if size > max_size:
        raise CodecError(f"body decompresses to more than the limit of {max_size:,} bytes")
    if not complete:
        raise CodecError("compressed body is incomplete: its stream ends early")
