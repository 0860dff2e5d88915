"""Habits of prose that make a reader take a sentence apart; CONTRIBUTING.md says what to write instead."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
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


def found(paths: list[Path], habit: re.Pattern[str], lines: Callable[[str], Iterable[tuple[int, str]]]) -> list[str]:
    """Return the lines with a habit; only files whose text has it at all are taken apart."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.splitlines()[0]}"
        for path in paths
        if habit.search(text := path.read_text())
        for number, line in (lines(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1))
        if habit.search(line)
    ]


def test_no_docstring_opens_with_a_question_word():
    def quoted(source: str) -> Iterator[tuple[int, str]]:
        return ((number, f'"""{text}') for number, text in docstrings(source))

    assert found(SOURCES, re.compile(rf'"""\s*{OPENING.pattern}'), quoted) == []


@pytest.mark.parametrize("paths", [SOURCES, PAGES], ids=["sources", "pages"])
def test_no_worn_phrase_stands_in_prose(paths: list[Path]):
    assert found(paths, PHRASE, prose) == []


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
