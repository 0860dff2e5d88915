"""An export whose progress cannot be noted."""

import asyncio
import errno
from pathlib import Path

import pytest

from rocketbroker.app.mqadmin import transfer
from rocketbroker.app.mqadmin.selecting import wanted
from rocketbroker.app.mqadmin.transfer import Export
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.common.errors import StoreError


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_that_cannot_be_continued_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str):
    def full(_path: Path, _state: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "write_state", full)
    run = Export(
        AdminClient("127.0.0.1:1"),
        str(tmp_path / "t"),
        {"topics": [], "format": form},
        wanted(None, None, None, None, None),
    )
    with pytest.raises(StoreError, match=r"t\.part\.state: No space left on device"):
        asyncio.run(run.run(resume=False))
    assert list(tmp_path.iterdir()) == []
