"""Settings of which we say that RocketMQ 5.5.0 does not read them: none of its classes asks for one."""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.common.config.unserved import REASONS
from tests.support.java_toolchain import jars

pytestmark = pytest.mark.java

(UNREAD,) = (reason.names for reason in REASONS if reason.title.startswith("Not read by RocketMQ"))
UTF8, INTEGER, FLOAT, LONG, DOUBLE, METHOD, NAME_AND_TYPE, METHOD_HANDLE = 1, 3, 4, 5, 6, 10, 12, 15
ONE_INDEX = {7, 8, 16, 19, 20}


def called_methods(classfile: bytes) -> Iterator[tuple[str, str]]:
    """Yield class and name of each method that a class refers to in its constant pool (JVM specification, 4.4)."""
    (count,) = struct.unpack_from(">H", classfile, 8)
    entries: dict[int, tuple[int, bytes | tuple[int, ...]]] = {}
    position, number = 10, 1
    while number < count:
        tag = classfile[position]
        if tag == UTF8:
            (length,) = struct.unpack_from(">H", classfile, position + 1)
            entries[number] = tag, classfile[position + 3 : position + 3 + length]
            position += 3 + length
        elif tag in ONE_INDEX:
            entries[number] = tag, struct.unpack_from(">H", classfile, position + 1)
            position += 3
        elif tag == METHOD_HANDLE:
            position += 4
        elif tag in {LONG, DOUBLE}:
            position += 9
            number += 1
        else:
            entries[number] = tag, struct.unpack_from(">HH", classfile, position + 1)
            position += 5
        number += 1
    for tag, indexes in entries.values():
        if tag == METHOD:
            owner, name = int(indexes[0]), int(indexes[1])
            yield text(entries, owner), text(entries, name)


def text(entries: dict[int, tuple[int, bytes | tuple[int, ...]]], index: int) -> str:
    """Return the text of a class or of a name with its type."""
    value = entries[index][1]
    while not isinstance(value, bytes):
        value = entries[value[0]][1]
    return value.decode("utf-8", "replace")


def readers(folder: Path, kind: str) -> dict[str, set[str]]:
    """Return, by getter, the classes that call it on a class of settings."""
    found: dict[str, set[str]] = {}
    for jar in sorted(folder.glob("rocketmq-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith("org/apache/rocketmq/") and name.endswith(".class"):
                    for owner, method in called_methods(archive.read(name)):
                        if owner.endswith(kind) and not name.removesuffix(".class").endswith(kind):
                            found.setdefault(method, set()).add(name)
    return found


def test_no_class_of_rocketmq_asks_for_them() -> None:
    found = readers(Path(jars("5.5.0")), "Config")

    assert "DefaultMessageStore" in " ".join(found["getFileReservedTime"])
    asked = {
        name: found[getter]
        for name in UNREAD
        for getter in (f"get{name[0].upper()}{name[1:]}", f"is{name[0].upper()}{name[1:]}", name)
        if getter in found
    }
    assert asked == {}
