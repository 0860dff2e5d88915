"""The probe gives figures and leaves nothing; files leave the page cache whole."""

import os
import shutil
from pathlib import Path

import pytest

from bench.measure import drop_from_page_cache, probe_fdatasync, room, sync_figures


def test_figures_are_of_all_syncs():
    figures = sync_figures([0.001] * 99 + [0.101])

    assert (figures.rate, figures.p50, figures.p99) == pytest.approx((500, 1.0, 2.0))
    assert str(figures) == "bare fdatasync: 500 syncs/s, p50 1.00 ms, p99 2.00 ms"


def test_the_probe_syncs_at_least_twice_and_removes_its_file(tmp_path: Path):
    figures = probe_fdatasync(tmp_path, 0)

    assert figures.rate > 0
    assert 0 < figures.p50 <= figures.p99
    assert list(tmp_path.iterdir()) == []


def test_some_room_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9 << 30, 4 << 30, 5 << 30))
    assert room(tmp_path) == 3 << 30

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9 << 30, 8 << 30, 1 << 30))
    assert room(tmp_path) == 0


def test_files_in_all_folders_are_dropped_and_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, start, length, _advice: advised.append((start, length)))
    for name in ("a", "b/c"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"content")

    drop_from_page_cache(tmp_path)

    assert advised == [(0, 0)] * 2
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [b"content"] * 2
