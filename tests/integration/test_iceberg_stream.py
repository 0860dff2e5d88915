"""The program of the manual that streams into Iceberg, killed on both sides of an append."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import golden_store
from tests.support.manual_session import blocks_of, file_name
from tests.support.our_servers import ROOT
from tests.support.slow_store_reader import slow_rows

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "how-to" / "iceberg.md"
PROGRAM = "stream_to_iceberg.py"
# Ends the program by SIGKILL at an append: before it, or when its snapshot is committed.
KILL = """
import os, runpy, signal
from pyiceberg.table import Table

append, left = Table.append, [{number}]

def killed(table, rows, **options):
    left[0] -= 1
    if {after} or left[0]:
        append(table, rows, **options)
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

Table.append = killed
runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_stream_has_each_message_once(tmp_path: Path, number: int, after: bool) -> None:
    golden_store.unpack("clean", tmp_path).rename(tmp_path / "apache-store")
    (program,) = [block.text for block in blocks_of(PAGE) if file_name(block) == PROGRAM]
    (tmp_path / PROGRAM).write_text(program)
    (tmp_path / "killed.py").write_text(KILL.format(number=number, after=after, program=PROGRAM))

    def run(name: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(
            [sys.executable, name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert run("killed.py").returncode == -signal.SIGKILL
    done = run(PROGRAM)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "182 messages in 2 snapshots"

    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"file://{tmp_path}/lake/tables"
    )
    columns = ("topic", "queue_id", "queue_offset")
    rows = catalog.load_table("shop.streamed").scan(selected_fields=columns).to_arrow().to_pylist()
    catalog.close()
    stored = slow_rows(tmp_path / "apache-store" / "commitlog")
    expected = sorted(tuple(row[name] for name in columns) for row in stored)
    assert sorted(tuple(row[name] for name in columns) for row in rows) == expected
