"""Every code of administration has a call."""

import ast
import re
from pathlib import Path

from rocketbroker.client import admin_client
from rocketbroker.client.admin_client import AdminClient

SOURCES = Path(admin_client.__file__).parent
CODES = Path(__file__).parents[3] / "docs" / "reference" / "request-codes.md"
REQUESTS = {"client_request", "_ask", "_ask_first", "_ask_name_server", "_ask_name_servers"}


def methods() -> list[ast.AsyncFunctionDef]:
    trees = [ast.parse(path.read_text()) for path in SOURCES.glob("admin_*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]


def codes_sent(method: ast.AsyncFunctionDef) -> set[str]:
    """Return the codes in calls that make a request."""
    calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
    requests = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in REQUESTS]
    texts = [ast.unparse(argument) for call in requests for argument in call.args]
    return {text.removeprefix("RequestCode.") for text in texts if text.startswith("RequestCode.")}


def test_each_administration_code_has_a_call():
    served = set(re.findall(r"^\| \d+ \| (\w+) \| administration \|", CODES.read_text(), re.MULTILINE))
    called = {code for method in methods() if hasattr(AdminClient, method.name) for code in codes_sent(method)}
    # A tool's commit of offsets is `commit_offset` of a consumer.
    assert len(served) > 40
    assert served - called == set()
