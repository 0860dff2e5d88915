"""Names and parts of files of an export; whole exports: tests/integration/test_export_and_replay.py."""

import pyarrow as pa
import pytest

from rocketbroker.analytics.files.store_root import place_of
from rocketbroker.analytics.jobs.exported_files import FOLDER, ExportedFiles, by_folder, folder_name
from rocketbroker.common.errors import ConfigError


def test_folders_are_named_as_spark_names_them():
    assert folder_name((), ()) == ""
    values = ["2026-11-22", "%DLQ%g/..=\x01", "Thème", None]
    assert folder_name(("a", "b", "c", "d"), values) == (
        "a=2026-11-22/b=%25DLQ%25g%2F..%3D%01/c=Thème/d=__HIVE_DEFAULT_PARTITION__/"
    )


def test_a_batch_is_split_where_its_folder_changes():
    batch = pa.RecordBatch.from_pydict({"body": list(range(5)), FOLDER: ["a", "a", "b", "c", "c"]})
    parts = [(folder, rows.to_pydict()) for folder, rows in by_folder(batch)]
    assert parts == [("a", {"body": [0, 1]}), ("b", {"body": [2]}), ("c", {"body": [3, 4]})]
    assert list(by_folder(batch.slice(0, 0))) == []


def test_a_folder_of_another_program_and_a_damaged_state_are_refused(tmp_path):
    files = ExportedFiles(place_of(tmp_path))
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(ConfigError, match="exists already and is no export; export to a new target"):
        files.state()
    (tmp_path / "_export.json").write_text('{"form": 1}')
    with pytest.raises(ConfigError, match=r"_export\.json: Expected `str`.*; export to a new target"):
        files.state()
