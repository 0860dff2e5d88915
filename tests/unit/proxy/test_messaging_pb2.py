"""The generated messages: made from our .proto file, and alike RocketMQ's in all that goes over the wire."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")

from rocketbroker.proxy import messaging_pb2

ROOT = Path(__file__).resolve().parents[3]
PROTO = "rocketbroker/proxy/messaging.proto"
NOT_SERVED = {"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"}
PACKAGE = "apache.rocketmq.v2."


def test_the_modules_are_made_from_the_proto_file(tmp_path: Path):
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")

    protoc = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I",
        "src",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    subprocess.run([*protoc, PROTO], check=True, cwd=ROOT, timeout=60)

    for name in ("messaging_pb2.py", "messaging_pb2.pyi"):
        made = (tmp_path / "rocketbroker" / "proxy" / name).read_text()
        assert made == (ROOT / "src" / "rocketbroker" / "proxy" / name).read_text(), (
            f"{name} differs: run python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src {PROTO}"
        )


@pytest.fixture(scope="module")
def official() -> list[Any]:
    """Descriptors of the two files of RocketMQ's Python client, read without importing it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, timestamp_pb2

    found = importlib.util.find_spec("rocketmq")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("rocketmq-python-client is not installed")
    folder = Path(found.submodule_search_locations[0]) / "grpc_protocol"
    pool = descriptor_pool.DescriptorPool()
    for module in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    names = []
    for file in ("definition_pb2.py", "service_pb2.py"):
        calls = [node for node in ast.walk(ast.parse((folder / file).read_text())) if isinstance(node, ast.Call)]
        [data] = [
            ast.literal_eval(call.args[0])
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "AddSerializedFile"
        ]
        pool.AddSerializedFile(data)
        names.append(descriptor_pb2.FileDescriptorProto.FromString(data).name)
    return [pool.FindFileByName(name) for name in names]


def messages(types: Iterable[Any]) -> Iterator[Any]:
    for each in types:
        yield each
        yield from messages(each.nested_types)


def plain(descriptor: Any) -> str:
    """Return a name without the package."""
    return "" if descriptor is None else descriptor.full_name.removeprefix(f"{descriptor.file.package}.")


def fields(message: Any) -> dict[str, tuple[Any, ...]]:
    return {
        field.name: (
            field.number, field.type, field.is_repeated, field.has_presence, plain(field.message_type),
            plain(field.enum_type), field.containing_oneof and field.containing_oneof.name,
        )
        for field in message.fields
    }  # fmt: skip


def test_messages_are_rocketmqs(official: list[Any]):
    theirs = {plain(each): fields(each) for file in official for each in messages(file.message_types_by_name.values())}
    ours = {plain(each): fields(each) for each in messages(messaging_pb2.DESCRIPTOR.message_types_by_name.values())}

    assert len(ours) > 50
    assert ours == {name: theirs[name] for name in ours}


def test_enums_are_rocketmqs(official: list[Any]):
    def values(file: Any) -> dict[str, dict[str, int]]:
        return {
            name: {each.name: each.number for each in enum.values} for name, enum in file.enum_types_by_name.items()
        }

    theirs = values(official[0])
    ours = values(messaging_pb2.DESCRIPTOR)

    assert len(ours) > 10
    assert ours == {name: theirs[name] for name in ours}


def test_methods_are_rocketmqs(official: list[Any]):
    def methods(file: Any) -> dict[str, tuple[Any, ...]]:
        service = file.services_by_name["MessagingService"]
        return {
            each.name: (plain(each.input_type), plain(each.output_type), each.client_streaming, each.server_streaming)
            for each in service.methods
        }

    theirs, ours = methods(official[1]), methods(messaging_pb2.DESCRIPTOR)

    assert official[1].services_by_name["MessagingService"].full_name.startswith(PACKAGE)
    assert set(theirs) - set(ours) == NOT_SERVED
    assert ours == {name: theirs[name] for name in ours}
