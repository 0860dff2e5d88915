"""Habits of prose that make a reader take a sentence apart; CONTRIBUTING.md says what to write instead."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: All but this file, whose examples are worn.
SOURCES = sorted(
    path
    for folder in ("src", "tests", "bench", "docs/_ext", "bin")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
)
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])

OPENING = re.compile(r"(What|Who|Whom|Whose|Which|Whether|How|Where|When|Why|Has|Have|To|The way of|Tells? if)\b")
PHRASE = re.compile(
    r"\banew\b"
    r"|(?<![Tt]here )\b(is|are) none\b"
    r"|\b(hold|holds|held|holding) (\w+ )?against\b"
    r"|\beach \d[\d.,]* ?(s|ms|min|seconds|minutes|messages)\b"
    r"|\b(is|are) (told|not heard)\b"
    r"|\bstands? behind\b"
    r"|\bhas room again\b"
    r"|\bclock of the wall\b"
)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every comment and every line of a string."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING} or "FSTRING" in tokenize.tok_name[token.type]:
            for number, line in enumerate(token.string.splitlines()):
                yield token.start[0] + number, line


def found(path: Path, lines: Iterator[tuple[int, str]], habit: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {text.splitlines()[0]}" for number, text in lines if habit.search(text)
    ]


def test_no_docstring_opens_with_a_question_word():
    openings = re.compile(rf"\A{OPENING.pattern}")

    assert [line for path in SOURCES for line in found(path, docstrings(path.read_text()), openings)] == []


@pytest.mark.parametrize("paths", [SOURCES, PAGES], ids=["sources", "pages"])
def test_no_worn_phrase_stands_in_prose(paths: list[Path]):
    def lines(path: Path) -> Iterator[tuple[int, str]]:
        text = path.read_text()
        return prose(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)

    assert [line for path in paths for line in found(path, lines(path), PHRASE)] == []


@pytest.mark.parametrize(
    ("text", "is_worn"),
    [
        ("the files are written anew", True),
        ("an id that is none", True),
        ("None if there is none", False),
        ("each record is held against its CRC", True),
        ("the record is held in memory", False),
        ("each 10 s", True),
        ("every 10 s", False),
        ("each 10 bytes", False),
    ],
)
def test_the_phrases_themselves(text: str, is_worn: bool):
    assert bool(PHRASE.search(text)) == is_worn
