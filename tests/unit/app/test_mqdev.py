"""What ``mqdev`` says when it is ready."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from rocketbroker.app import mqdev
from rocketbroker.app.dev_server import DevServer

FULL = "the disk of /store/commitlog is 93.1 % full, which is more than 90 % (diskSpaceWarningLevelRatio)"


@pytest.mark.parametrize("full", ["", FULL])
def test_a_disk_that_is_too_full_to_send_is_said(full: str, monkeypatch: pytest.MonkeyPatch):
    async def serve(_server: DevServer, booted: Callable[[], None]) -> None:
        booted()

    monkeypatch.setattr(mqdev, "serve", serve)
    monkeypatch.setattr(DevServer, "disk_full", full)

    lines = CliRunner().invoke(mqdev.app, []).stdout.splitlines()

    assert [line.split()[0] for line in lines[:4]] == ["ready", "namesrv", "broker", "store"]
    said = [
        f"  SENDS ARE REFUSED: {FULL}",
        " " * 21 + "free some room, or name a folder on another disk by --store DIR",
    ]
    assert lines[4:] == [*(said if full else []), "Ctrl-C stops it."]
