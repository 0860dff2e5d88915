"""The Grafana board."""

from itertools import combinations
from typing import Any

from rocketbroker.app.mqadmin.grafana_board import ROWS, board

PANELS: list[dict[str, Any]] = board("RocketMQ", "rocketbroker")["panels"]


def test_panels_lie_side_by_side():
    places = [panel["gridPos"] for panel in PANELS]
    overlapping = [
        (one, other)
        for one, other in combinations(places, 2)
        if one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    ]

    assert overlapping == []
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_each_panel_has_an_identity_and_says_when_to_worry():
    graphs = [panel for panel in PANELS if panel["type"] == "timeseries"]

    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len(graphs) == sum(map(len, ROWS.values()))
    assert [panel["title"] for panel in graphs if not panel["description"]] == []


def test_figures_that_slaves_report_too_are_counted_once():
    queries = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    names = (
        "lag_messages inflight ready_messages _connections half_messages behind_bytes timer_ timing_ checkpoint_buffer"
    )
    of_both = [query for query in queries if any(name in query for name in names.split())]

    assert len(of_both) > 10
    assert [query for query in of_both if "max by (" not in query] == []


def test_queries_are_those_of_the_chosen_clusters_and_nodes():
    queries = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]

    assert [query for query in queries if "{%" in query or "%}" in query] == []
    assert 'rocketmq_topic_number{cluster=~"$cluster",node_id=~"$node"}' in "".join(queries)
