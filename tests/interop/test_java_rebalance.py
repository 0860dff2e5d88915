"""Our allocation strategies give what the official Java client's give."""

from pathlib import Path

import pytest

from tests.support.java import Java
from tests.support.rebalance_cases import ANSWERS, cases

pytestmark = pytest.mark.java


@pytest.mark.parametrize("client", ["5.5.0", pytest.param("4.9.8", marks=pytest.mark.soak)])
def test_every_strategy_allocates_as_java_does(java: Java, tmp_path: Path, client: str):
    inputs, outputs = tmp_path / "in.txt", tmp_path / "out.txt"
    inputs.write_text("".join(f"{case.line()}\n" for case in cases()), encoding="utf-8")
    done = java.run("Rebalance", f"in={inputs}", f"out={outputs}", client=client)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    answers = outputs.read_text(encoding="utf-8")
    assert [case.answer() for case in cases()] == answers.splitlines()
    assert ANSWERS.read_text(encoding="utf-8") == answers, "the recorded answers are Java's"
