"""Understudy: synthetic tables with a differential-privacy guarantee.

Names load on first use, so that the command line answers at once.
"""

import importlib
from typing import TYPE_CHECKING

from understudy._version import __version__
from understudy.synthesizers.registry import SYNTHESIZERS

if TYPE_CHECKING:
    from understudy import learners as learners
    from understudy.api import fit as fit
    from understudy.api import plan as plan
    from understudy.encoding import Codec as Codec
    from understudy.errors import BudgetExceeded as BudgetExceeded
    from understudy.errors import CheckpointError as CheckpointError
    from understudy.errors import ConditionError as ConditionError
    from understudy.errors import ConfigError as ConfigError
    from understudy.errors import ReleaseError as ReleaseError
    from understudy.errors import SchemaError as SchemaError
    from understudy.errors import TableError as TableError
    from understudy.errors import UnderstudyError as UnderstudyError
    from understudy.evaluation.evaluate import evaluate as evaluate
    from understudy.evaluation.scorecard import Scorecard as Scorecard
    from understudy.failed_run import SpentError as SpentError
    from understudy.privacy.discovery import Binning as Binning
    from understudy.privacy.ledger import Guarantee as Guarantee
    from understudy.privacy.ledger import Ledger as Ledger
    from understudy.privacy.ledger import Plan as Plan
    from understudy.privacy.ledger import Statement as Statement
    from understudy.release import Release as Release
    from understudy.report import write_report as write_report
    from understudy.schema import Column as Column
    from understudy.schema import Domain as Domain
    from understudy.schema import Schema as Schema
    from understudy.synthesizers.aim import AIM as AIM
    from understudy.synthesizers.autogan import AutoGAN as AutoGAN
    from understudy.synthesizers.bayesgan import BayesGAN as BayesGAN
    from understudy.synthesizers.boosted.method import Boosted as Boosted
    from understudy.synthesizers.dpctgan import DPCTGAN as DPCTGAN
    from understudy.synthesizers.dpgan import DPGAN as DPGAN
    from understudy.synthesizers.drs import DRS as DRS
    from understudy.synthesizers.gem.method import GEM as GEM
    from understudy.synthesizers.independent import Independent as Independent
    from understudy.synthesizers.mst import MST as MST
    from understudy.synthesizers.mwem import MWEM as MWEM
    from understudy.synthesizers.patectgan import PATECTGAN as PATECTGAN
    from understudy.synthesizers.pategan import PATEGAN as PATEGAN
    from understudy.synthesizers.privbayes import PrivBayes as PrivBayes
    from understudy.synthesizers.protocol import Synthesizer as Synthesizer
    from understudy.synthesizers.quail import Quail as Quail
    from understudy.synthesizers.selected import Selected as Selected

_MODULE_OF = {
    "Codec": "encoding",
    "BudgetExceeded": "errors",
    "CheckpointError": "errors",
    "ConditionError": "errors",
    "ConfigError": "errors",
    "ReleaseError": "errors",
    "SchemaError": "errors",
    "SpentError": "failed_run",
    "TableError": "errors",
    "UnderstudyError": "errors",
    "Binning": "privacy.discovery",
    "Guarantee": "privacy.ledger",
    "Ledger": "privacy.ledger",
    "Plan": "privacy.ledger",
    "Statement": "privacy.ledger",
    "Scorecard": "evaluation.scorecard",
    "evaluate": "evaluation.evaluate",
    "write_report": "report",
    "Release": "release",
    "fit": "api",
    "plan": "api",
    "Column": "schema",
    "Domain": "schema",
    "Schema": "schema",
    "Synthesizer": "synthesizers.protocol",
    **{place.partition(":")[2]: place.partition(":")[0].removeprefix("understudy.") for place in SYNTHESIZERS.values()},
}
"""Where each public name is. Every class of `SYNTHESIZERS` is one, without a line of its own here."""

_MODULES = ("learners",)

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
