"""That the manual tells of exactly the tables, columns and options there are."""

from pathlib import Path

import pyarrow as pa
import pytest

from rocketbroker.analytics.spark.cluster_access import ACCESS_OPTIONS
from rocketbroker.analytics.spark.message_rows import SINK_COLUMNS
from rocketbroker.analytics.spark.pull_options import PULL_OPTIONS
from rocketbroker.analytics.spark.sink_options import SINK_OPTIONS
from rocketbroker.analytics.spark.source_options import OPTIONS
from rocketbroker.analytics.tables.table import Table, allowed_types
from rocketbroker.analytics.tables.table_reader import TABLES

_PAGES = Path(__file__).parents[4] / "docs" / "reference"
_MANUAL = (_PAGES / "store-tables.md").read_text()
_SPARK_NAMES = {
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string,string>",
}


def spark_name(kind: pa.DataType) -> str:
    return _SPARK_NAMES.get(str(kind), str(kind))


def described(table: Table) -> str:
    """Return the manual's text about a table."""
    lines = [
        f"### {table.name}",
        "",
        f"One row is {table.comment}.",
        "",
        "| column | type | content |",
        "|---|---|---|",
    ]
    for column in table.schema:
        kinds = " or ".join(map(spark_name, allowed_types(column)))
        lines.append(f"| `{column.name}` | {kinds} | {column.metadata[b'comment'].decode()} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "table", [each for each in TABLES.values() if each.name != "messages"], ids=lambda each: each.name
)
def test_each_table_is_described_with_its_columns(table: Table) -> None:
    assert described(table) in _MANUAL


def test_no_other_tables_are_described() -> None:
    section = _MANUAL.partition("\n## Tables\n")[2].partition("\n## ")[0]
    assert [line[4:] for line in section.splitlines() if line.startswith("### ")] == [
        name for name in TABLES if name != "messages"
    ]


@pytest.mark.parametrize(
    ("page", "title", "options"),
    [
        ("spark.md", "option", OPTIONS),
        ("spark-brokers.md", "option", {n: PULL_OPTIONS[n] for n in PULL_OPTIONS if n not in ACCESS_OPTIONS}),
        ("spark-brokers.md", "option of a protected cluster", ACCESS_OPTIONS),
        (
            "spark-brokers.md",
            "option for writing",
            {n: SINK_OPTIONS[n] for n in SINK_OPTIONS if n not in ACCESS_OPTIONS},
        ),
    ],
)
def test_each_option_is_described(page: str, title: str, options: dict[str, str]) -> None:
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in options.items())
    assert f"| {title} | meaning |\n|---|---|\n{rows}\n" in (_PAGES / page).read_text()


def test_each_column_to_write_is_described_with_its_types() -> None:
    section = (_PAGES / "spark-brokers.md").read_text().partition("\n### Columns to write\n")[2].partition("\n#")[0]
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in section.splitlines() if line.startswith("| `")]
    found = {name: kinds.replace("&lt;", "<").replace("&gt;", ">") for _, name, kinds, *_ in rows}
    assert found == {
        name: " or ".join(kinds).replace(" or ", ", ", len(kinds) - 2) for name, kinds in SINK_COLUMNS.items()
    }
