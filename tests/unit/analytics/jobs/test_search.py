"""Patterns and excerpts by themselves; that messages are found is tested in tests/integration/test_jobs.py."""

import pyarrow as pa
import pytest

from rocketbroker.analytics.jobs.search import Pattern, _excerpt, _find
from rocketbroker.common.errors import ConfigError

NUMBERS = {"queue_id": 0, "queue_offset": 0, "physical_offset": 0, "store_timestamp": 0}
SHOWN = {"broker": "a", "topic": "T", **NUMBERS, "msg_id": "M"}
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64() if name in NUMBERS else pa.string()) for name in SHOWN),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": ""}, "at least one character"),
        ({"text": "(", "is_regex": True}, "'\\(' is not a valid regular expression"),
        ({"text": "a\udcff"}, "is not valid UTF-8"),  # what a shell hands over for a byte that is no text
        ({"text": "a(?=b)", "is_regex": True}, "is not a valid regular expression"),
        ({"text": "a", "places": ()}, "places: empty; search in body"),
        ({"text": "a", "places": ("keys",)}, "places: keys; search in body, properties or both"),
    ],
)
def test_what_cannot_be_looked_for_is_named(fields: dict, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Pattern(**fields)


def test_a_text_is_no_regular_expression() -> None:
    values = pa.array(["a.c", "abc", None, "xA.C"])
    assert Pattern("a.c").positions(values).to_pylist() == [0, -1, None, -1]
    assert Pattern("a.c", ignore_case=True).positions(values).to_pylist() == [0, -1, None, 1]
    assert Pattern("a.c", is_regex=True).positions(values).to_pylist() == [0, 0, None, -1]


@pytest.mark.parametrize(
    ("value", "at", "excerpt"),
    [
        (b"short", 0, "short"),
        (b"\n\t" + b"x" * 40 + b"hit", 42, "…" + "x" * 30 + "hit"),
        (b"hit" + b"y" * 100, 0, "hit" + "y" * 87 + "…"),
        (b"\xff\x00 hit", 3, "\ufffd· hit"),
    ],
)
def test_an_excerpt_is_one_line_around_the_match(value: bytes, at: int, excerpt: str) -> None:
    assert _excerpt(value, at) == excerpt


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (Pattern("M[üu]ller", is_regex=True), ["Müller Straße", "\ufffd\x00Müller"]),
        (Pattern("^M.ller", is_regex=True), ["Müller Straße"]),
        (Pattern("[äö]", is_regex=True), []),
        (Pattern("日.$", is_regex=True), ["日本"]),
        (Pattern("müller", ignore_case=True), ["Müller Straße", "MÜLLER", "\ufffd\x00Müller"]),
        (Pattern("MÜLLER"), ["MÜLLER"]),
    ],
)
def test_bodies_are_searched_as_text(pattern: Pattern, found: list[str]) -> None:
    bodies = ["Müller Straße".encode(), "MÜLLER".encode(), "日本".encode(), b"\xff\x00" + "Müller".encode()]
    values = [{**SHOWN, "decompressed_body": body} for body in bodies]
    schema = pa.schema([*SCHEMA.remove(len(SHOWN)), ("decompressed_body", pa.binary())])
    (batch,) = pa.Table.from_pylist(values, schema).to_batches()
    in_bodies = Pattern(pattern.text, pattern.is_regex, pattern.ignore_case, ("body",))
    rows = [row for each in _find(iter([batch]), in_bodies) for row in each.to_pylist()]
    assert [row["excerpt"] for row in rows] == [each.replace("\x00", "·") for each in found]


def test_entries_of_a_slice_of_maps_are_those_of_its_rows() -> None:
    maps = [[("a", "hit")], None, [], [("b", "no"), ("c", "hit"), ("d", "hit")], [("e", "hit")]]
    rows = [{**SHOWN, "queue_offset": number, "properties": each} for number, each in enumerate(maps)]
    (whole,) = pa.Table.from_pylist(rows, SCHEMA).to_batches()
    (found,) = _find(iter([whole.slice(1, 3)]), Pattern("hit", places=("properties",)))
    assert [(each["queue_offset"], each["found_in"]) for each in found.to_pylist()] == [(3, "property c")]
