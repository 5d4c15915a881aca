"""Graphs: one large private graph (`fit_graph`), and tables in which each row holds a small graph (`to_columns`).

>>> import networkx as nx, understudy as us
>>> club = nx.karate_club_graph()
>>> release = us.fit_graph(club, us.GraphSchema.of_networkx(club), epsilon=1)
>>> release.sample_networkx().number_of_nodes()
34
"""

from understudy.graphs.columns import from_columns as from_columns
from understudy.graphs.columns import graph_columns as graph_columns
from understudy.graphs.columns import to_columns as to_columns
from understudy.graphs.fit import fit_graph as fit_graph
from understudy.graphs.fit import plan_graph as plan_graph
from understudy.graphs.metrics import GraphScores as GraphScores
from understudy.graphs.metrics import evaluate as evaluate
from understudy.graphs.release import GraphRelease as GraphRelease
from understudy.graphs.schema import GraphSchema as GraphSchema
