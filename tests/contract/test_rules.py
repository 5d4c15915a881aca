"""The contract of every method under rules: one rule of each kind, and rows of the real table that break each.

Methods with networks compile a program of their own for this table; of these dpgan runs with `make test`, the others
with `make long-test`.
"""

from pathlib import Path

import pyarrow.compute as pc
import pytest

import understudy as us
from tests.contract.test_contract import EXPRESSIONS, NEURAL, SEED, Fitted, assert_units, fit, plan
from tests.ruled import ruled_schema, ruled_table, violations
from understudy.synthesizers import SYNTHESIZERS

LONG = tuple(name for name in NEURAL if name != "dpgan")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in SYNTHESIZERS],
)
def with_rules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Of a table whose schema has a rule of each kind, and of whose rows some break each."""
    method = EXPRESSIONS[request.param]
    release = fit(method, seed=SEED, table=ruled_table(), schema=ruled_schema())
    folder: Path = tmp_path_factory.mktemp("contract") / "rules"
    release.save(folder)
    return Fitted(method, release, folder)


def test_every_row_keeps_the_rules(with_rules: Fitted) -> None:
    """With a condition and without, before saving and after; the rows of a unit share what is declared per unit."""
    schema, loaded = ruled_schema(), us.Release.load(with_rules.folder)
    assert loaded.schema == schema
    fake = with_rules.release.sample(3000, seed=0)
    assert violations(fake, schema) == {}
    assert fake.equals(loaded.sample(3000, seed=0))
    assert_units(fake, schema)
    some = loaded.sample(200, where="stop > start + 2 AND member AND currency <> 'USD'", seed=0)
    assert some.num_rows == 200
    assert violations(some, schema) == {}
    assert pc.all(some.column("member")).as_py()
    assert_units(some, schema)


def test_charges_with_rules_are_those_of_the_plan(with_rules: Fitted) -> None:
    """Real rows that break one change no charge. A rule that needs no re-expression changes no query at all."""
    planned = plan(with_rules.method, ruled_schema())
    assert planned.queries == with_rules.release.statement.queries
    unruled = plan(with_rules.method, ruled_schema(rules=ruled_schema().rules[-1:]))  # by structural zeros alone
    assert unruled.queries == plan(with_rules.method, ruled_schema(rules=())).queries
