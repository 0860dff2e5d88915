"""Start-up pays for the models alone: no settings library, no list of RocketMQ's properties."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[4] / "src"


def test_a_start_without_a_file_imports_neither_the_library_nor_the_list():
    code = (
        "import sys\n"
        "from rocketbroker.common.config.load import load_broker_settings\n"
        "load_broker_settings(None, '127.0.0.1:9876')\n"
        "from rocketbroker.common.config import known_properties\n"
        "print('javaproperties' in sys.modules, known_properties._document.cache_info().currsize)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert done.stdout.split() == ["False", "0"]
