"""The columns, and that the manual tells of exactly these."""

from pathlib import Path

import pyarrow as pa
import pytest

from rocketbroker.analytics.columns.message_schema import ALL_FIELDS, select_fields
from rocketbroker.analytics.tables.table import allowed_types
from rocketbroker.common.errors import ConfigError

_MANUAL = Path(__file__).parents[4] / "docs" / "reference" / "analytics.md"
_SPARK_NAMES = {
    "int32": "int",
    "int64": "bigint",
    "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string,string>",
}


def spark_name(kind: pa.DataType) -> str:
    return _SPARK_NAMES.get(str(kind), str(kind))


def test_the_manual_lists_every_column_with_its_type_and_meaning() -> None:
    lines = []
    for field in ALL_FIELDS.values():
        kinds = allowed_types(field)
        comment = field.metadata[b"comment"].decode()
        lines.append(f"| `{field.name}` | {' or '.join(map(spark_name, kinds))} | {comment} |")
    table = _MANUAL.read_text().partition("| column | type | content |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == lines


def test_a_column_named_twice_is_rejected() -> None:
    with pytest.raises(ConfigError, match="a column is named twice in size, topic, size"):
        select_fields(["size", "topic", "size"])
