"""Names of retry topics, properties of a message in each, and the group that it is of."""

from typing import Final

RETRY_NAMES: Final[list[tuple[str, dict[str, str], str]]] = [
    ("G", {}, "G"),
    ("G", {"RETRY_TOPIC": "T"}, "G"),
    ("G+T", {}, "G"),
    ("G_H+T_U", {"ORIGIN_GROUP": "G"}, "G_H"),
    ("G_T", {}, "G_T"),
    ("G_T", {"RETRY_TOPIC": "T"}, "G_T"),  # a group G_T that pulls
    ("G_T", {"ORIGIN_GROUP": "G"}, "G"),
    ("G_T", {"ORIGIN_GROUP": "G_T"}, "G_T"),
    ("G_H_T_U", {"ORIGIN_GROUP": "G_H"}, "G_H"),
    ("G_H+T", {"ORIGIN_GROUP": "G_H"}, "G_H"),
    ("G_T", {"ORIGIN_GROUP": "Other"}, "G_T"),
    ("", {}, ""),
]
