from rocketbroker.analytics.report import facts
from rocketbroker.analytics.report.figures import Figure, Kind, Section, Unit, show
from rocketbroker.analytics.report.sections import sections, tiles
from tests.support.report_facts import BEGIN_MS, MINUTE_MS, no_facts, store_facts, table


def section(name: str, **given: object) -> Section:
    return next(each for each in sections(store_facts(**given)) if each.name == name)


def drawn(found: Section) -> Figure:
    assert found.figure is not None
    return found.figure


def test_traffic_has_a_point_for_each_minute_and_a_row_for_each_topic():
    found = section("traffic")
    figure = drawn(found)
    assert figure.kind is Kind.AREAS
    assert {series.name: series.y for series in figure.series} == {
        "orders": [30, 0, 10, 0, 0, 0],
        "mail": [0, 0, 0, 0, 0, 5],
    }
    assert list(figure.series[0].x) == [BEGIN_MS + MINUTE_MS * number for number in range(6)]
    assert found.table.rows == [("orders", 40, 40 / 45, 4000, 30), ("mail", 5, 5 / 45, 9000, 5)]


def test_over_a_few_minutes_traffic_has_a_bar_for_each():
    for minutes in (1, 5):
        short = table(facts.TRAFFIC, *(("t", BEGIN_MS + number * MINUTE_MS, 7, 1) for number in range(minutes)))
        figure = drawn(section("traffic", traffic=short))
        (series,) = figure.series
        assert (figure.kind, list(series.y)) == (Kind.BARS, [7] * minutes)
        assert series.x[0] == show(BEGIN_MS, Unit.TIME).removesuffix(":00")
        assert len(set(series.x)) == minutes


def test_over_a_long_time_a_point_stands_for_several_minutes():
    long = table(facts.TRAFFIC, ("t", 0, 600, 1), ("t", 1000 * MINUTE_MS, 300, 1))
    (series,) = drawn(section("traffic", traffic=long)).series
    assert series.x[:2] == [0, 5 * MINUTE_MS]
    assert (series.y[0], series.y[-1], sum(series.y)) == (120, 60, 180)


def test_topics_beyond_the_colours_are_drawn_together_and_listed_each():
    queues = table(facts.QUEUES, *(("a", f"t{number:02}", 0, 100 - number, 1, 1) for number in range(12)))
    traffic = table(facts.TRAFFIC, *((f"t{number:02}", 0, 100 - number, 1) for number in range(12)))
    found = section("traffic", queues=queues, traffic=traffic, keys=facts.KEYS.empty_table())
    assert [series.name for series in drawn(found).series] == [f"t{number:02}" for number in range(8)] + ["others"]
    assert drawn(found).series[-1].y == [92 + 91 + 90 + 89]
    assert len(found.table.rows) == 12


def test_a_topic_has_one_colour_in_all_figures():
    colours: dict[str, set[int]] = {}
    for name in ("traffic", "sizes", "queues", "keys", "delays"):
        for series in drawn(section(name)).series:
            colours.setdefault(series.name, set()).add(series.colour)
    assert colours == {"orders": {0}, "mail": {1}}


def test_sizes_are_counted_between_borders():
    found = section("sizes")
    assert {series.name: list(series.y) for series in drawn(found).series} == {
        "orders": [40, 0, 0, 0],
        "mail": [0, 0, 0, 5],
    }
    assert list(drawn(found).series[0].x) == ["< 200 B", "< 500 B", "< 1 kB", "< 2 kB"]
    assert found.table.rows == [("orders", 40, 100, 100, 100, 100), ("mail", 5, 1800, 1800, 1800, 1800)]


def test_the_skew_of_a_topic_is_its_busiest_queue_over_the_mean():
    assert section("queues").table.rows == [("orders", 1.5, 2, 10, 20, 30, "0")]


def test_only_keys_that_occur_twice_are_hot():
    assert section("keys").table.rows == [("o-1", "orders", 20, 0.5)]
    assert "up to 7 more" in section("keys", keys_missed=7).note


def test_delays_tell_percentiles_and_clocks_that_are_ahead():
    found = section("delays")
    assert found.table.rows == [("orders", 40, 3, 3, 3, 3, 2), ("mail", 5, 2009, 2009, 2009, 2009, 0)]
    assert {series.name: list(series.y) for series in drawn(found).series}["orders"][:3] == [2, 0, 38]


def test_retries_are_reported_by_attempt_and_dead_letters_by_origin():
    assert section("retries").table.rows == [
        ("billing", 1, 4, 10_050, 10_050, 10_050),
        ("billing", 2, 1, 40_100, 40_100, 40_100),
    ]
    found = section("dead-letters")
    assert found.alarm
    assert found.table.rows == [("billing", "orders", 2, BEGIN_MS, BEGIN_MS + MINUTE_MS, 5 * MINUTE_MS)]


def test_lag_is_drawn_by_group_and_topic_and_listed_by_queue():
    found = section("lag")
    (series,) = drawn(found).series
    assert (list(series.x), list(series.y)) == (["billing · orders"], [18])
    assert [row[-1] for row in found.table.rows] == [18, 0]
    assert (
        section("lag", lag=facts.LAG.empty_table(), asked="since noon").empty == "Lag is shown for whole stores only."
    )


def test_damage_is_an_alarm_with_place_and_reason():
    found = section("corrupt")
    assert found.alarm
    assert found.table.rows == [("a", "0" * 20, 512, 90, "record-magic")]


def test_tiles_tell_the_whole_and_what_is_wrong():
    found = {tile.title: (tile.value, tile.alarm) for tile in tiles(store_facts())}
    assert found["messages"] == ("45", False)
    assert found["of the commit log"] == ("13 kB", False)
    assert found["not yet consumed"] == ("18", False)
    assert found["dead letters"] == ("2", True)
    assert found["damaged ranges"] == ("1", True)


def test_an_empty_store_has_all_sections_and_no_figure():
    found = sections(no_facts())
    assert [each.figure for each in found] == [None] * len(found)
    assert not any(each.alarm for each in found)
    assert {tile.value for tile in tiles(no_facts())} == {"0", "0 B", "\N{EN DASH}"}


def test_tables_are_cut_where_nobody_would_read_on():
    lag = table(facts.LAG, *(("a", "g", "t", number, 0, 200 - number, 200 - number) for number in range(150)))
    shown = section("lag", lag=lag).table
    assert (len(shown.rows), shown.left_out) == (100, 50)
