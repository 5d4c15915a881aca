"""Draws the picture of the README from a real run on the embedded survey, and the map of a simulated city.

python docs/make_images.py
"""

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

IMAGES = Path(__file__).parent / "images"
EDUCATION = {
    "none": "no degree",
    "ged": "GED",
    "highschool": "high school",
    "bachelor": "bachelor",
    "master": "master",
    "phd": "PhD",
}
AGES = [18, 25, 35, 45, 55, 63]
REAL, SYNTHETIC, INK, GRID = "#1b1b1b", "#0f7cb8", "#333", "#ddd"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from understudy.cli import main; main()", "demo", "-o", "understudy-demo"]
        subprocess.run(command, cwd=folder, check=True)
        real, fake = (
            pd.read_csv(Path(folder, "understudy-demo", name), keep_default_na=False)
            for name in ("survey.csv", "synthetic.csv")
        )
    (IMAGES / "real_and_synthetic.svg").write_text(draw_shares(real, fake))
    (IMAGES / "city.svg").write_text(draw_city())


def draw_city() -> str:
    """The density of the simulated city, real and synthetic, over its public outline."""
    import numpy as np

    import understudy as us

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.city import city
    from understudy.evaluation.locations import location_scores
    from understudy.report.chart_sections import draw_map

    drawn = city()
    fake = us.fit(drawn.train, "mst", epsilon=1, delta=1e-6, schema=drawn.schema, seed=0).sample(100_000, seed=0)
    points = [
        {"home": np.stack([table.column(name).to_numpy() for name in ("lat", "lon")], axis=1)}
        for table in (drawn.train, fake)
    ]
    found = location_scores(drawn.schema, *points).details["locations"]["home"]["map"]
    peak = max(value for grid in (found["real"], found["synthetic"]) for row in grid for value in row)
    panels = []
    titles = ("100,000 people of a simulated city", "100,000 synthetic rows, epsilon 1, mst")
    for number, (grid, title) in enumerate(zip((found["real"], found["synthetic"]), titles, strict=True)):
        body = draw_map(found, grid, peak)[0]
        panels.append(
            f'<g transform="translate({20 + 350 * number}, 40)"><text y="-14" fill="{INK}">{title}</text>{body}</g>'
        )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 710 380" font-family="sans-serif" font-size="14">'
        f'<rect width="710" height="380" fill="#fff"/>{"".join(panels)}</svg>\n'
    )


def draw_shares(real: pd.DataFrame, fake: pd.DataFrame) -> str:
    """Percent insured by degree and by age, and limited in activity by age, in both tables."""
    for table in (real, fake):
        table["degree"] = table["education"].map(EDUCATION)
        table["years"] = pd.cut(table["age"], AGES, right=False)
    names = [f"{low} to {high - 1}" for low, high in itertools.pairwise(AGES)]
    panels = [
        ("Insured, by degree", "insurance", "degree", list(EDUCATION.values()), list(EDUCATION.values())),
        ("Insured, by age", "insurance", "years", list(real["years"].cat.categories), names),
        ("Limited in activity, by age", "limit", "years", list(real["years"].cat.categories), names),
    ]
    parts = []
    for number, (title, column, group, values, labels) in enumerate(panels):
        pairs = [
            tuple(100 * (table.loc[table[group] == value, column] == "yes").mean() for table in (real, fake))
            for value in values
        ]
        parts.append(f'<g transform="translate({20 + 290 * number}, 78)">{draw_panel(title, labels, pairs)}</g>')
    legend = (
        f'<circle cx="28" cy="46" r="5" fill="none" stroke="{REAL}" stroke-width="2"/>'
        f'<text x="40" y="51" fill="{INK}">8,802 real people</text>'
        f'<circle cx="186" cy="46" r="5" fill="{SYNTHETIC}"/>'
        f'<text x="198" y="51" fill="{INK}">8,802 synthetic rows, epsilon 1, default method, one run</text>'
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 300" width="900" font-size="14" '
        'font-family="system-ui, sans-serif"><rect width="900" height="300" fill="#fff"/>'
        f'<text x="20" y="26" font-size="16" font-weight="600" fill="{INK}">'
        "The embedded health survey and a synthetic table: percent of each group</text>"
        f"{legend}{''.join(parts)}</svg>\n"
    )


def draw_panel(title: str, labels: list[str], pairs: list[tuple[float, float]]) -> str:
    """One row for each group: the real share as a ring, the synthetic one as a dot."""
    left, right, step = 84, 262, 27
    at = [f"{left + (right - left) * tick / 100:.1f}" for tick in (0, 50, 100)]
    bottom = 22 + step * len(labels)
    parts = [f'<text x="0" y="8" font-weight="600" fill="{INK}">{title}</text>']
    for place, tick in zip(at, (0, 50, 100), strict=True):
        parts.append(f'<path d="M{place} 20V{bottom}" stroke="{GRID}"/>')
        parts.append(
            f'<text x="{place}" y="{bottom + 16}" font-size="12" text-anchor="middle" fill="{INK}">{tick}%</text>'
        )
    for row, (label, pair) in enumerate(zip(labels, pairs, strict=True)):
        y = 36 + step * row
        real, fake = (f"{left + (right - left) * value / 100:.1f}" for value in pair)
        parts.append(f'<text x="{left - 10}" y="{y + 5}" text-anchor="end" fill="{INK}">{label}</text>')
        parts.append(f'<circle cx="{fake}" cy="{y}" r="5" fill="{SYNTHETIC}"/>')
        parts.append(f'<circle cx="{real}" cy="{y}" r="6.5" fill="none" stroke="{REAL}" stroke-width="1.8"/>')
    return "".join(parts)


if __name__ == "__main__":
    main()
