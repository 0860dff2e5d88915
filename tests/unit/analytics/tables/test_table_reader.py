import pyarrow as pa
import pytest

from rocketbroker.analytics import read_store
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.tables.table import TableOptions, table_schema
from rocketbroker.analytics.tables.table_reader import TABLES, read_table
from rocketbroker.common.errors import ConfigError, StoreError
from tests.support.table_rows import named, table_rows


@pytest.mark.parametrize("name", TABLES)
def test_any_table_is_read_without_spark(recorded, name):
    batches = list(read_table(named(recorded), name))
    schema = pa.schema([column.remove_metadata() for column in TABLES[name].schema])
    assert all(batch.schema.equals(schema) for batch in batches)
    assert sum(batch.num_rows for batch in batches) == len(table_rows(named(recorded), name))


def test_messages_are_those_of_read_store(recorded):
    columns, selection = ["broker", "topic", "keys", "body"], Selection(topics={"StFill", "StDelay"})
    assert list(read_table(recorded, columns=columns, selection=selection)) == list(
        read_store(recorded, columns, selection=selection)
    )


def test_the_wrong_is_named_at_the_call(recorded, tmp_path):
    with pytest.raises(ConfigError, match="table 'topic' is unknown"):
        read_table(recorded, "topic")
    with pytest.raises(ConfigError, match="table topics has no column 'body'"):
        read_table(recorded, "topics", ["body"])
    with pytest.raises(ConfigError, match="table topics does not support selection by key, only by broker, topic"):
        read_table(recorded, "topics", selection=Selection(keys={"k"}))
    with pytest.raises(StoreError, match="is not the root of a RocketMQ store"):
        read_table(tmp_path, "topics")
    with pytest.raises(StoreError, match="has no commit log"):
        read_table(tmp_path, "messages")


@pytest.mark.parametrize("name", TABLES)
def test_a_selection_of_nothing_is_one_of_any_table(recorded, name):
    nothing = Selection(physical_offsets=(0, 5)).and_(Selection(physical_offsets=(7, 9)))
    assert list(read_table(recorded, name, selection=nothing)) == []
    table, schema = TABLES[name], table_schema(TABLES[name], None)
    for part in table.plan(store_roots(named(recorded)), EVERYTHING, TableOptions()):
        assert sum(batch.num_rows for batch in table.read(part, schema, nothing)) == 0
