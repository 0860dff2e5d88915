"""Each command that a page names for its figures runs, here in its shortest form."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("operations/performance.md", "operations/scale.md", "operations/scaling.md", "internals/crash-safety.md")
RUN_LIMIT_S = 300

# What makes each benchmark short; an option given later wins.
SHORTEST = {
    "analytics": ["--messages", "2000", "--rounds", "1", "--cores", "1", "--only", "pruned,full,spark_traffic"],
    "analytics_live": ["--messages", "2000", "--rounds", "1", "--only", "spark_full,pull_python"],
    "big_store": ["--messages", "4000", "--pull", "100", "--rounds", "1"],
    "broker_processes": ["--brokers", "1,2", "--rounds", "1", "--seconds", "0.5"],
    "broker_scale": ["--connections", "20", "--topics", "20", "--seconds", "0.1", "--wakes", "5"],
    "cleaning": ["--segments", "2", "--mib", "16", "--rate", "100", "--seconds", "1"],
    "clients": ["--rounds", "1", "--seconds", "3", "--messages", "1000", "--only", "ours"],
    "delayed": ["--messages", "200", "--rate", "100", "--seconds", "1"],
    "first_message": ["--rounds", "2"],
    "namesrv_scale": ["--brokers", "10", "--topics", "50", "--spread", "2", "--rounds", "1", "--seconds", "0.1"],
    "pop": ["--rounds", "1", "--seconds", "3", "--warm", "0", "--ours-only"],
    "profile_batch": ["--bursts", "3"],
    "profile_pop": ["--bursts", "1"],
    "profile_send": ["--bursts", "3"],
    "recovery": ["--mib", "2", "--rounds", "1"],
    "replication": ["--seconds", "3", "--warm", "3", "--mib", "16"],
    "scale": [],
    "sdk": ["--rounds", "1", "--seconds", "3", "--only", "send64", "--sides", "ours"],
    "side_by_side": ["--rounds", "1", "--seconds", "3", "--warm", "0", "--ours-only"],
}
# All loads of the comparison take minutes: those that no other documented command runs.
SHORTER_ONLY = ["--only", "sync1,drain"]
# Unit tests run each benchmark too: without --soak, one of them shows that the commands start.
ALWAYS = {"profile_send"}
MARKS = {
    **dict.fromkeys(
        ("replication", "clients", "first_message", "side_by_side", "pop", "big_store", "sdk"), pytest.mark.java
    ),
    **dict.fromkeys(
        ("analytics", "analytics_live", "scale"), pytest.mark.spark
    ),  # "scale" reads the figures of "analytics"
}


def commands(pattern: str) -> list[str]:
    """Commands of the pages, in the order in which they stand there."""
    lines = [line for page in PAGES for line in (ROOT / "docs" / page).read_text().splitlines()]
    return list(dict.fromkeys(line.removeprefix("$ ").strip() for line in lines if re.match(pattern, line)))


def short_form(command: str) -> list[str]:
    name, *options = shlex.split(command)[1:]
    if name == "side_by_side" and "--only" not in options:
        options += SHORTER_ONLY
    return [name, *options, *SHORTEST[name]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the commands, which run one after the other: some read the output of others."""
    return tmp_path_factory.mktemp("figures")


def marked(command: str) -> object:
    name = shlex.split(command)[1]
    marks = [mark for mark in [MARKS.get(name)] if mark]
    return pytest.param(command, marks=marks if name in ALWAYS else [*marks, pytest.mark.soak])


@pytest.mark.timeout(RUN_LIMIT_S + 30)
@pytest.mark.parametrize("command", [marked(command) for command in commands(r"\$ bench/run ")])
def test_a_benchmark_runs_in_its_shortest_form(command: str, folder: Path):
    done = subprocess.run(
        [ROOT / "bench" / "run", *short_form(command)],
        cwd=folder, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"\d\.\d", done.stdout), f"no figures: {done.stdout[-2000:]}"


@pytest.mark.parametrize("command", commands(r"    bin/test "))
def test_a_proof_names_tests_that_there_are(command: str):
    """The short form of each is a part of every run; the long one has soak tests."""
    words = shlex.split(command, comments=True)[1:]
    files = [ROOT / word for word in words if word.startswith("tests/")]

    assert files
    assert [file for file in files if not file.is_file()] == []
    if "--soak" in words:
        assert [file for file in files if "pytest.mark.soak" not in file.read_text()] == []
    assert set(words) <= {"--soak", *(str(file.relative_to(ROOT)) for file in files)}


def test_each_commit_that_a_page_cites_is_in_the_repository():
    cited = {
        word
        for page in PAGES
        for word in re.findall(
            r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,40}\b", (ROOT / "docs" / page).read_text()
        )
    }
    history = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    # An export, or a clone of the last commit alone, has no history to look at.
    is_whole = history.returncode == 0 and not (ROOT / ".git" / "shallow").exists()
    known = history.stdout.split() if is_whole else [*cited]

    assert cited
    assert {word for word in cited if not any(commit.startswith(word) for commit in known)} == set()
