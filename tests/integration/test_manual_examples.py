"""Every console example of README, Start, How-to and the page on Spark runs, and prints what its page shows."""

import shutil
import time
from pathlib import Path

import pytest

from tests.support.manual_session import ROOT, Session, blocks_of, file_name

PAGES = [
    ROOT / "README.md",
    *sorted([*(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]),
    ROOT / "docs" / "reference" / "spark.md",
]


# Pages whose programs each start Spark: minutes for what the tests of the sources and of the exports cover.
LONGEST = ("iceberg.md", "spark.md")

# Tool that the examples of a language need; those of Java have a mark of their own.
TOOLS = {"go": "go", "javascript": "node"}


def marked(page: Path) -> object:
    blocks = blocks_of(page)
    languages = {block.language for block in blocks}
    tools = {tool for language, tool in TOOLS.items() if language in languages}
    tools |= {"curl"} if any("$ curl " in block.text for block in blocks) else set()
    missing = sorted(tool for tool in tools if not shutil.which(tool))
    marks = [pytest.mark.java] if "java" in languages else []
    marks += [pytest.mark.soak] if page.name in LONGEST else []
    marks += [pytest.mark.spark] if "spark_session" in page.read_text() else []
    marks += [pytest.mark.skip(reason=f"needs {', '.join(missing)}")] if missing else []
    return pytest.param(page, id=f"{page.parent.name}/{page.name}", marks=marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
@pytest.mark.long
def test_a_reader_can_follow_the_page(page: Path, tmp_path: Path):
    session = Session(tmp_path)
    try:
        session.read(page)
    finally:
        session.close()


OTHER_LANGUAGES = ROOT / "docs" / "start" / "test-in-other-languages.md"
JAVA = ROOT / "docs" / "start" / "java.md"
JUNIT = "java -cp 'junit.jar:lib/*:.' org.junit.platform.console.ConsoleLauncher execute --select-class OrdersTest"
RECIPES = {
    "go": (OTHER_LANGUAGES, "go test .", "mqdev ended: exit status 3"),
    "node": (OTHER_LANGUAGES, "node --test orders.test.mjs", "mqdev ended with 3"),
    "java": (JAVA, f"javac -cp 'lib/*:junit.jar' Broker.java OrdersTest.java && {JUNIT}", "mqdev ended with 3"),
}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tool", [pytest.param(tool, marks=[pytest.mark.java] * (tool == "java")) for tool in RECIPES])
def test_a_recipe_says_that_the_broker_did_not_start(tool: str, tmp_path: Path):
    if not shutil.which(tool):
        pytest.skip(f"needs {tool}")
    page, command, said = RECIPES[tool]
    session = Session(tmp_path)
    (tmp_path / "commands" / "mqdev").write_text("#!/bin/sh\necho mqdev: no port is free >&2\nexit 3\n")
    (tmp_path / "commands" / "mqdev").chmod(0o755)
    for block in blocks_of(page):
        if name := file_name(block):
            (tmp_path / name).write_text(block.text)

    if tool == "go":
        session.run("go mod init orders && go test -run NONE -c -o /dev/null .")  # compiling is not the recipe's time
    began = time.monotonic()
    done = session.run(command)

    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert "no port is free" in done.stdout + done.stderr
    assert time.monotonic() - began < 30
