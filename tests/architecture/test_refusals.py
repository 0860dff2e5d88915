"""The page of refusals and the code say the same."""

import ast
import re
from pathlib import Path

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.processor.support.put_answers import RESPONSE_CODES
from rocketbroker.store.commitlog.put_message import PutMessageStatus, Refusal

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "operations" / "refusals.md").read_text()


class Texts(ast.NodeVisitor):
    """Strings of a module as the compiler joins them, with ``{}`` for each value, without docstrings."""

    def __init__(self, source: str) -> None:
        self.found: list[str] = []
        self.visit(ast.parse(source))

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values))

    def visit_Constant(self, node: ast.Constant) -> None:
        self.found.append(str(node.value))


def test_each_rejecting_status_is_on_the_page_with_its_code():
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \((\d+)\) \|", PAGE, re.MULTILINE)

    assert {(status, code, int(number)) for status, code, number in rows} == {
        (status.name, code.name, code.value) for status, code in RESPONSE_CODES.items()
    }
    assert len(rows) == len(PutMessageStatus) - 1


def test_each_standing_cause_has_its_own_status():
    assert len({refusal.value for refusal in Refusal}) == len(list(Refusal))


def test_each_remark_of_access_control_is_in_the_code():
    section = PAGE.partition("\n## Access control\n")[2].partition("\n## ")[0]
    remarks = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)
    rooms = (ROOT / "src" / "rocketbroker" / room for room in ("auth", "processor/support"))
    texts = "\n".join(text for room in rooms for file in room.glob("*.py") for text in Texts(file.read_text()).found)

    assert len(remarks) == len(re.findall(r"^\| (?!remark )", section, re.MULTILINE)) > 0
    # {MAX_NAMES:,} is the one number in a remark.
    assert [remark for remark in remarks if remark.replace("5,000", "{}") not in texts] == []


def test_a_docstring_is_no_text_for_people():
    source = 'def f(n):\n    """Doc."""\n    return f"more than {n} " "names"\n'
    assert Texts(source).found == ["more than {} names"]


def test_each_setting_on_the_page_is_one_of_ours():
    of_topics = {"writeQueueNums", "readQueueNums"}
    models = (BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig)
    names = {name for model in models for name in fields_by_name(model)} | of_topics
    cells = [line.rsplit("|", 2)[1] for line in PAGE.splitlines() if line.startswith("| ")]
    wanted = {word for cell in cells for word in re.findall(r"`([a-z]+[A-Z]\w+)`", cell)}

    assert wanted - names == set()
    assert wanted > of_topics
