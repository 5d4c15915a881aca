"""Graphs: one large private graph (`fit_graph`), and tables in which each row holds a small graph (`to_columns`).

>>> import networkx as nx, understudy as us
>>> club = nx.karate_club_graph()
>>> release = us.fit_graph(club, us.GraphSchema.of_networkx(club), epsilon=1)
>>> release.sample_networkx().number_of_nodes()
34
"""

from understudy.graphs.columns import from_columns, graph_columns, to_columns
from understudy.graphs.fit import fit_graph, plan_graph
from understudy.graphs.metrics import GraphScores, evaluate
from understudy.graphs.release import GraphRelease
from understudy.graphs.schema import GraphSchema

__all__ = [
    "GraphRelease",
    "GraphSchema",
    "GraphScores",
    "evaluate",
    "fit_graph",
    "from_columns",
    "graph_columns",
    "plan_graph",
    "to_columns",
]
