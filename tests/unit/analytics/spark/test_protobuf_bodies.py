"""Values of Protobuf messages; in a query: test_from_body.py."""

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from pyspark.sql.pandas.types import to_arrow_type

from rocketbroker.analytics.spark.protobuf_bodies import message_class, struct_of, values_of


@pytest.fixture
def order() -> Any:
    """Class of a message of proto2 with a text and a time."""
    files = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(
        name="shop.proto", package="shop", syntax="proto2", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    message, optional = file.message_type.add(name="Order"), FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(name="id", number=1, label=optional, type=FieldDescriptorProto.TYPE_STRING)
    message.field.add(
        name="at",
        number=2,
        label=optional,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
    )
    return message_class(files.SerializeToString(), "Order")


@pytest.mark.parametrize(
    "unfit",
    [
        b"\x0a\x02\xff\xfe",  # a text that is not UTF-8
        b"\x12\x0a\x08" + b"\xff" * 8 + b"\x7f",  # more seconds than have microseconds in 64 bits
        b"\xff",
    ],
)
def test_a_body_with_values_that_no_column_can_have_is_null(order: Any, unfit: bytes) -> None:
    fits = order(id="é", at={"seconds": 3}).SerializeToString()
    kind = to_arrow_type(struct_of(order.DESCRIPTOR, ()), timezone="UTC")
    found = values_of(order, [fits, unfit, None, fits], kind)
    assert [each.is_valid for each in found] == [True, False, False, True]
    assert found[0]["id"].as_py() == "é"
    assert pa.compute.cast(found[3]["at"], pa.int64()).as_py() == 3_000_000
