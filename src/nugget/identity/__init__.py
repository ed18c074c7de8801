"""Are two structures the same?

`graph` compares bonds, `fingerprint` compares distances, `known` remembers what was seen. A graph
knows neither lengths nor angles nor handedness: mirror images and shapes with the same bonds have
the same graph. A fingerprint tells the latter apart, but not mirror images.
"""

from nugget.identity.fingerprint import PERIODIC_CUTOFF, DistanceFingerprint
from nugget.identity.graph import (
    BondGraph,
    degree_sequence,
    graph_key,
    is_connected,
    is_reference,
    min_distance_ratio,
    same_graph,
)
from nugget.identity.known import KnownStructures

__all__ = [
    "PERIODIC_CUTOFF",
    "BondGraph",
    "DistanceFingerprint",
    "KnownStructures",
    "degree_sequence",
    "graph_key",
    "is_connected",
    "is_reference",
    "min_distance_ratio",
    "same_graph",
]
