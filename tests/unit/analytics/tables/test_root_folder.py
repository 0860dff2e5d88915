"""The folder of a store for tables."""

import shutil

import pytest

from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.tables.root_folder import queues_folder, root_folder
from rocketbroker.common.errors import StoreError


def test_a_commit_log_directory_is_not_enough(tmp_path):
    with pytest.raises(StoreError, match="is not the root of a RocketMQ store: it contains none of commitlog, "):
        root_folder(StoreRoot("b", str(tmp_path)))


def test_incomplete_queues_are_reported(clean, tmp_path, caplog):
    root = StoreRoot("b", str(shutil.copytree(clean, tmp_path / "store")))
    assert queues_folder(root, "delayed").root == root
    assert caplog.messages == []
    (tmp_path / "store" / "abort").write_bytes(b"1")
    queues_folder(root, "delayed")
    (told,) = caplog.messages
    assert told.startswith(f"{root.uri} was not stopped cleanly: delayed lacks messages whose queue entries ")
