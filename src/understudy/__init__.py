"""Understudy: synthetic tables with a differential-privacy guarantee.

Names load on first use, so that the command line answers at once.
"""

import importlib
from typing import TYPE_CHECKING

from understudy._version import __version__
from understudy.synthesizers.registry import SYNTHESIZERS

if TYPE_CHECKING:
    from understudy import graphs as graphs
    from understudy import learners as learners
    from understudy.accuracy import guarantee_for as guarantee_for
    from understudy.api import fit as fit
    from understudy.api import plan as plan
    from understudy.audit.audit import audit_method as audit_method
    from understudy.book import BudgetBook as BudgetBook
    from understudy.book import Policy as Policy
    from understudy.boosting import BoostedSamples as BoostedSamples
    from understudy.boosting import boost as boost
    from understudy.boosting import plan_boost as plan_boost
    from understudy.bundle import Verification as Verification
    from understudy.bundle import verify_bundle as verify_bundle
    from understudy.bundle import write_bundle as write_bundle
    from understudy.disclosure.disclose import Disclosure as Disclosure
    from understudy.disclosure.disclose import disclose as disclose
    from understudy.encoding import Codec as Codec
    from understudy.errors import BookError as BookError
    from understudy.errors import BudgetExceeded as BudgetExceeded
    from understudy.errors import BundleError as BundleError
    from understudy.errors import CheckpointError as CheckpointError
    from understudy.errors import ConditionError as ConditionError
    from understudy.errors import ConfigError as ConfigError
    from understudy.errors import ReleaseError as ReleaseError
    from understudy.errors import SchemaError as SchemaError
    from understudy.errors import TableError as TableError
    from understudy.errors import UnderstudyError as UnderstudyError
    from understudy.errors import UnderstudyWarning as UnderstudyWarning
    from understudy.evaluation.evaluate import evaluate as evaluate
    from understudy.evaluation.scorecard import Scorecard as Scorecard
    from understudy.failed_run import SpentError as SpentError
    from understudy.graphs.fit import fit_graph as fit_graph
    from understudy.graphs.fit import plan_graph as plan_graph
    from understudy.graphs.release import GraphRelease as GraphRelease
    from understudy.graphs.schema import GraphSchema as GraphSchema
    from understudy.metadata.about import About as About
    from understudy.metadata.describe import describe_release as describe_release
    from understudy.mock_table import mock as mock
    from understudy.privacy.discovery import Binning as Binning
    from understudy.privacy.ledger import Guarantee as Guarantee
    from understudy.privacy.ledger import Ledger as Ledger
    from understudy.privacy.ledger import Plan as Plan
    from understudy.privacy.ledger import Statement as Statement
    from understudy.release import Release as Release
    from understudy.report import write_report as write_report
    from understudy.schema import Column as Column
    from understudy.schema import Domain as Domain
    from understudy.schema import Location as Location
    from understudy.schema import Schema as Schema
    from understudy.splitting import split as split
    from understudy.synthesizers.protocol import Synthesizer as Synthesizer
    from understudy.synthesizers.registry import *  # noqa: F403 - the class of every method
    from understudy.synthesizers.tasks import add_task as add_task
    from understudy.table_preview import Preview as Preview
    from understudy.table_preview import preview as preview
    from understudy.tables import ReadOptions as ReadOptions

_NAMES_IN = {
    "accuracy": ("guarantee_for",),
    "api": ("fit", "plan"),
    "book": ("BudgetBook", "Policy"),
    "boosting": ("BoostedSamples", "boost", "plan_boost"),
    "audit.audit": ("audit_method",),
    "bundle": ("Verification", "verify_bundle", "write_bundle"),
    "disclosure.disclose": ("Disclosure", "disclose"),
    "encoding": ("Codec",),
    "errors": (
        "BookError",
        "BudgetExceeded",
        "BundleError",
        "CheckpointError",
        "ConditionError",
        "ConfigError",
        "ReleaseError",
        "SchemaError",
        "TableError",
        "UnderstudyError",
        "UnderstudyWarning",
    ),
    "evaluation.evaluate": ("evaluate",),
    "evaluation.scorecard": ("Scorecard",),
    "failed_run": ("SpentError",),
    "graphs.fit": ("fit_graph", "plan_graph"),
    "graphs.release": ("GraphRelease",),
    "graphs.schema": ("GraphSchema",),
    "metadata.about": ("About",),
    "metadata.describe": ("describe_release",),
    "mock_table": ("mock",),
    "privacy.discovery": ("Binning",),
    "privacy.ledger": ("Guarantee", "Ledger", "Plan", "Statement"),
    "release": ("Release",),
    "report": ("write_report",),
    "schema": ("Column", "Domain", "Location", "Schema"),
    "splitting": ("split",),
    "synthesizers.protocol": ("Synthesizer",),
    "synthesizers.tasks": ("add_task",),
    "table_preview": ("Preview", "preview"),
    "tables": ("ReadOptions",),
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names} | {
    place.partition(":")[2]: place.partition(":")[0].removeprefix("understudy.") for place in SYNTHESIZERS.values()
}
"""Where each public name is. Every class of `SYNTHESIZERS` is one, without a line of its own here."""

_MODULES = ("graphs", "learners")

__all__ = ["__version__", *sorted([*_MODULE_OF, *_MODULES])]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"understudy.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'understudy' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"understudy.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
