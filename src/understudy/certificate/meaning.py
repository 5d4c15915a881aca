"""What the guarantee of a statement means for one unit: a sentence for every reader, two small tables, and JSON.

Every figure is an upper bound, computed from the queries of the statement alone, and is rounded up. Bounds on beliefs
have a condition (`Meaning.condition`), which every text states with them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from understudy.privacy.accounting.ledger import PublicFacts, Statement
from understudy.privacy.accounting.statement import round_up
from understudy.privacy.accounting.tradeoff import statement_tradeoff

PRIORS = (0.5, 0.1, 0.01)
FALSE_POSITIVE_RATES = (0.01, 0.05)
RARELY = 0.01
"""The probability with which a bound on a belief may be exceeded; for a second bound it is delta."""
PRIOR_OF_SENTENCE = 0.1


@dataclasses.dataclass(frozen=True)
class Meaning:
    """Bounds on beliefs about one unit, and on tests of its presence, as defined and proved in
    `privacy/accounting/tradeoff.py`.
    """

    facts: PublicFacts
    delta: float
    posteriors: Mapping[tuple[float, float], float]
    """The largest belief after the release, by the belief before, and by the probability with which it is exceeded."""
    true_positive_rates: Mapping[float, float]
    """The largest true-positive rate of a test of presence, by its false-positive rate."""

    @property
    def claim(self) -> str:
        """What is believed or tested."""
        if self.facts.graph_unit is not None:
            return _GRAPH_CLAIMS[self.facts.graph_unit]
        if self.facts.unit is not None:
            return f"the rows with a given {as_code(self.facts.unit)} are in the table"
        # If the number of rows is public, so is the existence of the row; what is believed or tested is its content.
        return f"a given person's {'row' if self.facts.rows_declared is None else 'data'} is in the table"

    @property
    def sentence(self) -> str:
        """For readers who do not know differential privacy."""
        before, after = percent(PRIOR_OF_SENTENCE), percent(self.posteriors[PRIOR_OF_SENTENCE, RARELY])
        if not self._has_limit:
            return (
                f"This guarantee sets no useful limit: someone who thinks it {before} likely that {self.claim} may be "
                "almost certain of it after seeing the release."
            )
        return (
            f"Someone who thinks it {before} likely that {self.claim} will, after seeing the release, think it at most "
            f"{after} likely, except with a probability of at most {percent(RARELY)}."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentence and, where there is a limit, its condition."""
        return (self.sentence, self.condition) if self._has_limit else (self.sentence,)

    @property
    def _has_limit(self) -> bool:
        return percent(self.posteriors[PRIOR_OF_SENTENCE, RARELY]) != "100%"

    @property
    def condition(self) -> str:
        """What bounds on beliefs assume: without it, only group privacy holds."""
        if self.facts.graph_unit is not None:
            alone = {"edge": "one edge says", "node": "the edges of one node say"}[self.facts.graph_unit]
            return (
                f"This assumes that {alone} nothing about the others. Edges that are all in the graph or all absent, "
                "such as those of a group of friends, have a larger effect together, so more can be learned about each "
                "of them."
            )
        if self.facts.unit is not None:
            return (
                "This assumes that the presence of one unit says nothing about the others. Units that are all in the "
                "table or all absent have a larger effect together, so more can be learned about each of them."
            )
        return (
            "This assumes that the presence of one row says nothing about the others. People who are all in the table "
            "or all absent, such as the members of a household, have a larger effect together, so more can be learned "
            "about each of them."
        )

    def belief_table(self) -> list[tuple[str, ...]]:
        """Its first row has the headings."""
        exceptions = dict.fromkeys(exception for _, exception in self.posteriors)
        said = [percent(each) if each == RARELY else f"{one_in(each)} (delta)" for each in exceptions]
        heads = ("before", *(f"after, except with probability {each}" for each in said))
        rows = [(percent(prior), *(percent(self.posteriors[prior, each]) for each in exceptions)) for prior in PRIORS]
        return [heads, *rows]

    def test_table(self) -> list[tuple[str, ...]]:
        """Its first row has the headings."""
        rates = self.true_positive_rates.items()
        heads = ("wrongly named (false-positive rate)", "correctly named, at most (true-positive rate)")
        return [heads, *((percent(rate), percent(most)) for rate, most in rates)]

    def sections(self) -> list[str]:
        """Blocks of Markdown, for the certificate."""
        title = "## What can be learned about the presence of one unit"
        beliefs, tests = _markdown(self.belief_table()), _markdown(self.test_table())
        source = (
            "All of these bounds follow from the queries below: from epsilon at every delta, not only from the pair at "
            "the top of this page."
        )
        population = (
            "Conclusions that follow from the graph as a whole, such as that nodes of one block are connected more "
            "often, are not limited by this."
            if self.facts.graph_unit is not None
            else "Conclusions that follow from the population, such as that smokers fall ill more often, are not "
            "limited by this: they can be drawn about a person who is not in the table as well."
        )
        return [title, self._about_beliefs, beliefs, self._about_tests, tests, population, source]

    @property
    def _about_beliefs(self) -> str:
        graph_unit, sized = self.facts.graph_unit, ""
        if graph_unit is not None:
            unit, others, presence = _GRAPH_UNITS[graph_unit], "edges", "this unit"
        else:
            is_row = self.facts.unit is None
            rows = "one row" if is_row else f"all rows with the same value of {as_code(self.facts.unit or '')}"
            unit, others, presence = f"A unit is {rows}.", "rows", "whether this unit is in the table"
            if self.facts.rows_declared is not None:
                sized = (
                    " The number of rows is public, so not being in the table means here: the table has as many rows, "
                    f"but no query takes {'this row' if is_row else 'these rows'} into account."
                )
        return (
            f"{unit} The first column is the probability that someone assigns, before seeing the release, to the claim "
            f"that {self.claim}. The other columns bound it afterwards. Each bound may be exceeded with at most the "
            "probability in the heading of its column. The bounds hold for anyone who applies Bayes' rule, whatever "
            f"they know about the other {others}, as long as what they believe about the other {others} does not "
            f"depend on {presence}. Under the same condition they hold for belief in the opposite as well.{sized}"
        )

    @property
    def _about_tests(self) -> str:
        who = "people who" if self.facts.unit is None else "units that"
        absent, present = f"{who} are not in the table", f"{who} are"
        if self.facts.graph_unit is not None:
            absent, present = "units that are not in the graph", "units that are"
        rate, most = next(iter(self.true_positive_rates.items()))
        wrong, correct = (percent(each).removesuffix("%") for each in (rate, most))
        return (
            f"A test decides from the release whether {self.claim}. Under the same condition and on average, a test "
            f"that wrongly names {wrong} of "
            f"100 {absent} (a false-positive rate of {percent(rate)}) correctly names at most "
            f"{correct} of 100 {present} (its true-positive rate)."
        )

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


_GRAPH_CLAIMS = {
    "edge": "two given nodes are connected by an edge of the graph",
    "node": "the edges of a given node are in the graph",
}
_GRAPH_UNITS = {"edge": "A unit is one edge.", "node": "A unit is all edges of one node."}


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
    """Rounded up to two digits, from 90% on to three."""
    return f"{round_up(100 * probability, 2 if probability < 0.9 else 3)}%"


def one_in(probability: float) -> str:
    """A small probability for people, rounded up."""
    if probability <= 0:
        return "0"
    times = 1 / probability * (1 + 1e-9)  # 1 / 2e-6 may be a little less than 500,000
    step = 10 ** max(math.floor(math.log10(times)) - 1, 0)
    return f"1 in {math.floor(times / step) * step:,}"


def _markdown(table: Sequence[tuple[str, ...]]) -> str:
    heads, *rows = table
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ("---", *["---:"] * (len(heads) - 1)), *rows))


def as_code(name: str) -> str:
    """A column's name as code in Markdown, whatever it holds."""
    plain = " ".join(name.split()).replace("`", "'")
    return f"`{plain}`"
