"""The page of proofs has each marked test in its section."""

from pathlib import Path

import pytest

from docs._ext import proofs

SOURCE = """
import pytest

pytestmark = [pytest.mark.java, pytest.mark.proves("Order", "of all")]


@pytest.mark.timeout(3)
@pytest.mark.proves("Order", "of " "one")
async def test_one(): ...


class TestMore:
    @pytest.mark.proves("Tables", "two")
    def test_two(self): ...
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(proofs, "_TESTS", tmp_path)
    return tmp_path


def test_functions_methods_and_files_are_found(tests: Path):
    (tests / "unit").mkdir()
    (tests / "unit" / "test_a.py").write_text(SOURCE)

    assert proofs.proofs() == [
        ("Order", "of all", "tests/unit/test_a.py"),
        ("Order", "of one", "tests/unit/test_a.py::test_one"),
        ("Tables", "two", "tests/unit/test_a.py::TestMore::test_two"),
    ]
    assert "## Tables\n\n| promise | tests |\n|---|---|\n| two | `tests/unit/test_a.py::TestMore::" in proofs.render()


def test_a_section_that_the_page_lacks_is_named(tests: Path):
    (tests / "test_a.py").write_text(SOURCE.replace("Tables", "Chairs"))

    with pytest.raises(ValueError, match=r"'Chairs' of tests/test_a\.py::TestMore::test_two"):
        proofs.proofs()
