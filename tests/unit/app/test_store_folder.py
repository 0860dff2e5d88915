import tempfile
from pathlib import Path

import pytest

from rocketbroker.app.store_folder import StoreFolder
from rocketbroker.common.errors import ConfigError


def test_a_temporary_folder_is_removed_and_can_be_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = StoreFolder(None)
    for _ in range(2):
        folder.create()
        assert folder.path.parent == tmp_path
        folder.remove()
        folder.remove()
        assert list(tmp_path.iterdir()) == []
    assert not folder.is_kept


def test_a_given_folder_is_kept_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = StoreFolder(Path("deep/store"))
    for _ in range(2):
        folder.create()
        folder.remove()
    assert folder.path == tmp_path / "deep" / "store"
    assert folder.path.is_dir()
    assert folder.is_kept


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot create the folder .*/file/store"):
        StoreFolder(tmp_path / "file" / "store").create()
