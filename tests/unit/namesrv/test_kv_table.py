"""Pairs by namespace, with what they take once they are encoded."""

from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.namesrv.kv_table import KVNamespaces

names = st.sampled_from(["a", "b", "\u00e9", "\x01"])
changes = st.lists(st.tuples(names, names, st.none() | st.text(st.characters(codec="utf-8"), max_size=5)), max_size=30)


@given(changes)
def test_sizes_and_numbers_are_true_after_any_changes(done: list[tuple[str, str, str | None]]) -> None:
    table = KVNamespaces()
    for namespace, key, value in done:
        if value is None:
            table.delete(namespace, key)
        else:
            table.put(namespace, key, value)
    again = KVNamespaces(table.as_dict())
    assert (table.entries, table.size) == (again.entries, again.size)
    for namespace, pairs in table.as_dict().items():
        assert table.entries_of(namespace) == len(pairs)
        # {"table":{}}, and a comma less than pairs
        assert table.size_of(namespace) == len(table.encoded(namespace)) - 12 + (1 if pairs else 0)


@given(changes, st.integers(0, 60))
def test_a_part_is_never_over_its_limit_and_names_all_that_is_left_out(
    done: list[tuple[str, str, str | None]], most: int
) -> None:
    table = KVNamespaces({"a": {}})
    for _, key, value in done:
        table.put("a", key, value or "")
    body, left_out = table.encoded_part("a", most)
    assert len(body) <= most + 12
    assert len(set(left_out)) == len(left_out)
    assert bool(left_out) == (table.size_of("a") > most)
