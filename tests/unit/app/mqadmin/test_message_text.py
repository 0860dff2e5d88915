"""Messages as lines and rows, and their bodies in each form."""

import pytest
import typer

from rocketbroker.app.mqadmin.message_text import BodyForm, charset_named, decoded_body, message_line, message_lines
from tests.support.stored_message import stored


@pytest.mark.parametrize(
    ("body", "form", "shown"),
    [
        (b'{"a": 1}', BodyForm.auto, {"a": 1}),
        (b"[1, 2]", BodyForm.auto, [1, 2]),
        (b"17", BodyForm.auto, "17"),
        (b"{half", BodyForm.auto, "{half"),
        ("\u00e9t\u00e9 \t\n".encode(), BodyForm.auto, "\u00e9t\u00e9 \t\n"),
        (b"\x1b[2J", BodyForm.auto, "1b5b324a"),
        (b"\xff\x00", BodyForm.auto, "ff00"),
        (b"17", BodyForm.json, 17),
        (b"no", BodyForm.json, "no"),
        (b"\xffa", BodyForm.text, "\\xffa"),
        (b"\x01a", BodyForm.hex, "0161"),
        (b"\x01a", BodyForm.base64, "AWE="),
    ],
)
def test_a_body_in_each_form(body: bytes, form: BodyForm, shown: object):
    assert decoded_body(body, form, "utf-8") == shown


def test_an_unknown_charset_is_refused():
    assert charset_named("GBK") == "GBK"
    for name in ("klingon", "base64"):
        with pytest.raises(typer.BadParameter, match=f"charset '{name}' is unknown"):
            charset_named(name)


def test_a_message_on_one_line_as_java_prints_it():
    message = stored(body=b"\xffA", properties={"UNIQ_KEY": "ID", "TAGS": "T"})
    line = message_line(message, "broker-a", "utf-8", with_body=True)
    assert line.startswith("MSGID: ID MessageExt [brokerName=broker-a, queueId=1, storeSize=")
    assert "properties={UNIQ_KEY=ID, TAGS=T}, body=[-1, 65], transactionId='null'}] BODY: \\xffA" in line
    assert message_line(message, "b", "utf-8", with_body=False).endswith("] BODY: NOT PRINT BODY")


def test_a_message_without_keys_and_tags():
    lines = message_lines(stored(body=b"x", properties={}), "utf-8")
    assert "Tags:                [null]" in lines
    assert "Keys:                [null]" in lines
    assert lines[-1] == "Message Body:        x"
