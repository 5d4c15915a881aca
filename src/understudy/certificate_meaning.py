"""What the guarantee of a statement means for one unit: a sentence for every reader, two small tables, and JSON.

Every figure is an upper bound, computed from the queries of the statement alone, and is rounded up.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from understudy.privacy.ledger import PublicFacts, Statement
from understudy.privacy.statement import round_up
from understudy.privacy.tradeoff import statement_tradeoff

PRIORS = (0.5, 0.1, 0.01)
FALSE_POSITIVE_RATES = (0.01, 0.05)
RARELY = 0.01
"""The probability with which a bound on a belief may be exceeded; for a second bound it is delta."""
PRIOR_OF_SENTENCE = 0.1


@dataclasses.dataclass(frozen=True)
class Meaning:
    """Bounds on beliefs about one unit, and on tests of its presence; `privacy/tradeoff.py` defines and proves them.

    >>> import understudy as us
    >>> schema = {"columns": {"a": {"kind": "boolean"}}}
    >>> import pyarrow as pa
    >>> statement = us.fit(pa.table({"a": [True, False] * 50}), "independent", epsilon=1, schema=schema).statement
    >>> print(statement_meaning(statement).sentence)
    Someone who thinks it 10% likely that a given person's row is in the table will, after seeing the release, think \
it at most 18% likely, except with a probability of at most 1%.
    """

    facts: PublicFacts
    delta: float
    posteriors: Mapping[tuple[float, float], float]
    """The largest belief after the release, by the belief before, and by the probability with which it is exceeded."""
    true_positive_rates: Mapping[float, float]
    """The largest true-positive rate of a test of presence, by its false-positive rate."""

    @property
    def claim(self) -> str:
        """What is believed or tested. If the number of rows is public, the alternative is absent values."""
        if self.facts.unit is not None:
            return f"the rows with a given {as_code(self.facts.unit)} are in the table"
        row = "a given person's row"
        return f"{row} is in the table" if self.facts.rows_declared is None else f"the values of {row} are in the table"

    @property
    def sentence(self) -> str:
        """For readers who do not know differential privacy."""
        after = percent(self.posteriors[PRIOR_OF_SENTENCE, RARELY])
        return (
            f"Someone who thinks it {percent(PRIOR_OF_SENTENCE)} likely that {self.claim} will, after seeing the "
            f"release, think it at most {after} likely, except with a probability of at most {percent(RARELY)}."
        )

    def belief_table(self) -> list[tuple[str, ...]]:
        """Its first row has the headings."""
        exceptions = dict.fromkeys(exception for _, exception in self.posteriors)
        said = [percent(each) if each == RARELY else f"{round_up(each, 2)} (delta)" for each in exceptions]
        heads = ("before", *(f"after, except with probability {each}" for each in said))
        rows = [(percent(prior), *(percent(self.posteriors[prior, each]) for each in exceptions)) for prior in PRIORS]
        return [heads, *rows]

    def test_table(self) -> list[tuple[str, ...]]:
        """Its first row has the headings."""
        rates = self.true_positive_rates.items()
        heads = ("false-positive rate", "largest true-positive rate")
        return [heads, *((percent(rate), percent(most)) for rate, most in rates)]

    def sections(self) -> list[str]:
        """Blocks of Markdown, for the certificate."""
        absent = "this row counts" if self.facts.unit is None else "these rows count"
        sized = (
            f" The number of rows is public, so the alternative is that {absent} as absent."
            if self.facts.rows_declared is not None
            else ""
        )
        beliefs = (
            f"The first column is the probability that someone assigns, before seeing the release, to the claim that "
            f"{self.claim}. The other columns bound it afterwards. The bounds hold for anyone who applies Bayes' rule, "
            "even with knowledge of all other rows, and for belief in the opposite as well. Each may be exceeded with "
            f"at most the probability in the heading of its column.{sized}"
        )
        tests = (
            f"A test decides from the release whether {self.claim}. If its probability of saying so wrongly is at most "
            "the one on the left, its probability of saying so correctly is at most the one on the right."
        )
        source = (
            "All of these bounds follow from the queries below: from epsilon at every delta, not only from the pair at "
            "the top of this page."
        )
        title = "## What can be learned about one unit"
        return [title, beliefs, _markdown(self.belief_table()), tests, _markdown(self.test_table()), source]

    def to_json(self) -> dict[str, object]:
        return {
            "posteriors": [
                {"prior": prior, "exceeded_with_probability": exception, "largest_posterior": after}
                for (prior, exception), after in self.posteriors.items()
            ],
            "true_positive_rates": [
                {"false_positive_rate": rate, "largest_true_positive_rate": most}
                for rate, most in self.true_positive_rates.items()
            ],
        }


def statement_meaning(statement: Statement) -> Meaning | None:
    """None if nothing was released or nothing is guaranteed: without noise, or with noise from a seed."""
    if not (statement.is_private and statement.released):
        return None
    bounds = statement_tradeoff(statement)
    return Meaning(
        statement.facts,
        statement.delta,
        {
            (prior, exception): bounds.largest_posterior(prior, probability=exception)
            for exception in dict.fromkeys((RARELY, statement.delta))
            for prior in PRIORS
        },
        {rate: bounds.largest_true_positive_rate(rate) for rate in FALSE_POSITIVE_RATES},
    )


def percent(probability: float) -> str:
    """Rounded up to two digits, from 90% on to three.

    >>> percent(0.1712), percent(0.01), percent(0.9871), percent(0.99999)
    ('18%', '1%', '98.8%', '100%')
    """
    return f"{round_up(100 * probability, 2 if probability < 0.9 else 3)}%"


def _markdown(table: Sequence[tuple[str, ...]]) -> str:
    heads, *rows = table
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ("---", *["---:"] * (len(heads) - 1)), *rows))


def as_code(name: str) -> str:
    """A column's name as code in Markdown, whatever it holds."""
    plain = " ".join(name.split()).replace("`", "'")
    return f"`{plain}`"
