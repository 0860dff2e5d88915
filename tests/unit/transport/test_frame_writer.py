"""Frames of one connection, joined or handed over as they are."""

import asyncio

import pytest

from rocketbroker.transport import frame_writer
from rocketbroker.transport.frame_writer import FrameWriter


class Recorder(asyncio.Transport):
    """Transport that keeps what each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(("write", len(data)))

    def writelines(self, list_of_data: object) -> None:
        self.calls.append(("writelines", sum(map(len, list_of_data))))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("pauses", "sizes", "call"),
    [
        (True, [100], "write"),
        (True, [100, 200], "write"),
        (True, [100, 70_000], "writelines"),
        (False, [100, 70_000], "write"),
    ],
)
async def test_large_frames_are_joined_only_where_writelines_never_pauses(
    monkeypatch: pytest.MonkeyPatch, pauses: bool, sizes: list[int], call: str
):
    monkeypatch.setattr(frame_writer, "_WRITELINES_PAUSES", pauses)
    writer = FrameWriter(asyncio.get_running_loop())
    writer.transport = recorder = Recorder()

    writer.write([bytes(size) for size in sizes])

    assert recorder.calls == [(call, sum(sizes))]
