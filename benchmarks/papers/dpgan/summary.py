"""What the DP-GAN abstract says beside what was found here, from committed results."""

from collections.abc import Sequence

from benchmarks.papers.dpgan import ablation
from benchmarks.papers.rows import Row, joined, mean, read, read_tables
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.events import SubsampledGaussian

ORDER = (ablation.PLAIN, *ablation.SINGLES, ablation.ALL)
NAMES = "none of them / smart clipping / adaptive clipping / warm start / epoch selection / all four"
ROWS_1940 = 130_000_000


def rows() -> list[Row]:
    return [_accountant(), _warm_start(), *_combinations(), _census(), _locations(), _graphs()]


def verdicts() -> list[tuple[str, str]]:
    return [_combining(), *_effects(), _grouping()]


def _accountant() -> Row:
    """Computed here: it needs no data."""
    event, delta = SubsampledGaussian(0.01, 4.0, 10_000), 1e-5
    return Row(
        id="D1",
        what="Section 3, epsilon of 10,000 steps at sampling rate 0.01, sigma 4, delta 1e-5: moments as published, the "
        "ledger's accountant",
        published="1.26",
        as_published=f"{accounting.moments_epsilon([event], delta):.4f}",
        sound=f"{accounting.spent([event], delta=delta).epsilon:.4f}",
        command="benchmarks/papers/pages.py",
    )


def _warm_start() -> Row:
    lines = read("dpgan_ablation")

    def auc(name: str) -> str:
        return mean([(line["gb"] + line["lr"]) / 2 for line in lines if line["name"] == name])

    return Row(
        id="D2",
        what="Section 4.2, a warm start from 2% of the rows, Adult, epsilon 1: AUC without it / with it; as published "
        "without noisy marginals",
        published="about 15% more accuracy (Zhang et al.)",
        as_published=joined([auc("bare plain"), auc("bare warm")]),
        sound=joined([auc("plain"), auc("warm")]),
        seeds=str(len({line["seed"] for line in lines})),
        command="benchmarks/sweep_dpgan.py",
    )


def _combinations() -> list[Row]:
    """One row for each table and budget, with the runs without marginals beside those with them."""
    lines = read(ablation.NAME)
    blocks = sorted({(line["table"].removesuffix(ablation.BARE), line["epsilon"]) for line in lines})
    found = []
    for table, epsilon in blocks or [(name, epsilon) for name in ablation.TABLES for epsilon in ablation.EPSILONS]:
        scores = [_aucs(lines, name, epsilon) for name in (table, table + ablation.BARE)]
        found.append(
            Row(
                id="D4",
                what=f"Section 5, AUC on {table.capitalize()}, epsilon {epsilon:g}: {NAMES}; as published without "
                "noisy 1-way marginals",
                published="a hypothesis",
                sound=scores[0],
                as_published=scores[1],
                seeds=str(len({x["seed"] for x in lines if (x["table"], x["epsilon"]) == (table, epsilon)}) or ""),
                command="ablation.py",
            )
        )
    return found


def _aucs(lines: Sequence[dict], table: str, epsilon: float) -> str:
    which = [line for line in lines if (line["table"], line["epsilon"]) == (table, epsilon)]
    return joined(
        [mean([x["scores"]["auc"] for x in which if x["method"] == ablation.name_of(design)]) for design in ORDER]
    )


def _census() -> Row:
    """The last run of each method: earlier ones were made before a defect was found."""
    cells = [line for line in read("sizes") if line["cell"]["rows"] == ROWS_1940 and line["cell"]["table"] == "census"]
    last = {line["cell"]["method"]: line["tvd2"] for line in cells if "tvd2" in line}
    return Row(
        id="D3",
        what="Section 5, 130 million rows of the 1940 census (here rows drawn again from a sample of it), ten columns, "
        "error of 2-way marginals: `aim` / `auto`; not measured for a GAN",
        published="a hypothesis",
        sound=joined([f"{last[name]:.4f}" if name in last else "" for name in ("aim", "auto")]),
        seeds="1" if last else "",
        command="benchmarks/sizes.py",
    )


def _locations() -> Row:
    points = [row for row in read_tables("locations") if row[2] == "location, mst"]
    return Row(
        id="D5",
        what="Section 4.5, locations on land: points of a million outside the region "
        "([all figures](../../benchmarks/results/locations.md))",
        published="a proposal",
        sound=str(sum(int(row[-1]) for row in points)) if points else "",
        seeds=str(len({row[1] for row in points}) or ""),
        command="benchmarks/locations.py",
    )


def _graphs() -> Row:
    degrees = next((row for row in read_tables("graphs") if row[0] == "degree distance"), [])
    return Row(
        id="D6",
        what="Section 4.5, graphs: distance of degree distributions at epsilon 1, one edge protected, synthetic / "
        "random ([all figures](../../benchmarks/results/graphs.md))",
        published="a proposal",
        sound=joined(degrees[2:]),
        seeds="5",
        command="benchmarks/graphs.py",
    )


# ------------------------------------------------------------------------------------------------------------- verdicts


def _combining() -> tuple[str, str]:
    parts = []
    for title, lines in ablation.families(read(ablation.NAME)).items():
        found = ablation.verdict(ablation.runs_of(lines, "auc"))
        parts.append(f"{title}: {found[0].lower()}{found[1:]}")
    return "Combining the techniques is better than any single one (section 5).", " ".join(parts) or "Not yet run."


def _effects() -> list[tuple[str, str]]:
    """The mean change of the AUC by each technique."""
    found = []
    for factor in ablation.FACTORS:
        parts = []
        for title, lines in ablation.families(read(ablation.NAME)).items():
            value = ablation.estimate(ablation.runs_of(lines, "auc"), ablation.effect([factor]))
            if value is not None:
                parts.append(f"{title.partition(' (')[0].lower()} {value}")
        text = f"AUC with it minus AUC without it, 95% interval: {', '.join(parts)}." if parts else "Not yet run."
        found.append((f"{ablation.TITLES[factor].capitalize()} improves a DP-GAN.", text))
    return found


def _grouping() -> tuple[str, str]:
    """Why groups failed, by what repairs them."""
    from benchmarks.papers.dpgan import groups

    lines = read(groups.NAME)
    text = groups.explanation(lines) if lines else "Not yet run."
    return "Groups of weights with clip norms of their own add less noise, so they cannot hurt (section 4.1).", text
