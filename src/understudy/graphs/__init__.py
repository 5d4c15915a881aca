"""Graphs: one large private graph (`fit_graph`), and tables in which each row owns a small graph (`to_columns`)."""

from understudy.graphs.fit import fit_graph as fit_graph
from understudy.graphs.fit import plan_graph as plan_graph
from understudy.graphs.release import GraphRelease as GraphRelease
from understudy.graphs.schema import GraphSchema as GraphSchema
