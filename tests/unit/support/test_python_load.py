"""The load by our own client."""

from pathlib import Path

from tests.support.ports import free_ports
from tests.support.python_load import PythonLoad


def test_a_load_can_be_closed_as_soon_as_it_is_made(tmp_path: Path):
    load = PythonLoad(f"127.0.0.1:{free_ports()}", tmp_path / "lines")
    load.close()
    assert not load.is_alive
