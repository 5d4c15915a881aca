"""A made-up hospital table, as messy as an export: for the tutorial and the notebooks. Nobody in it exists.

    python hospital_stays.py stays.csv

One row is a stay, and a patient has one to six of them. Fields are separated by semicolons, dates are day.month.year,
weights have a decimal comma, missing values are words, and one column is free text.
"""

import argparse
import os

import numpy as np
import pyarrow as pa

PATIENTS = 40_000
LAST_DAY = np.datetime64("2024-12-31")
YEAR = 2024
DAYS = 3 * 365 + 1
CHILD = 16
"""Younger patients are treated in paediatrics."""
WARDS = {
    "medicine": (("heart", "lungs", "infection", "metabolism"), 6.0),
    "surgery": (("injury", "abdomen", "joints"), 4.5),
    "psychiatry": (("depression", "addiction"), 18.0),
    "obstetrics": (("birth", "pregnancy"), 3.0),
    "paediatrics": (("infection", "lungs", "injury"), 2.5),
}
"""Diagnoses and mean nights by ward."""
REMARKS = ("", "", "", "called the family", "allergic to penicillin", "transferred from another hospital")


def hospital_stays(patients: int = PATIENTS, *, seed: int = 0) -> pa.Table:
    """Stays of made-up patients, every value as text, written as in the file.

    >>> hospital_stays(100).column_names[:5]
    ['stay_no', 'patient_no', 'sex', 'birth_year', 'ward']
    """
    draw = np.random.default_rng(seed)
    age = np.where(
        draw.random(patients) < 0.12, draw.integers(0, CHILD, patients), draw.triangular(CHILD, 58, 98, patients)
    )
    age = age.astype(int)
    woman = draw.random(patients) < 0.54
    people = {
        "patient_no": (100_000 + draw.permutation(900_000)[:patients]).astype(str),
        "sex": _with_gaps(draw, np.where(woman, "f", "m"), 0.005, "unknown"),
        "birth_year": (YEAR - age).astype(str),
    }
    owner = np.repeat(np.arange(patients), draw.choice(6, patients, p=[0.58, 0.22, 0.1, 0.05, 0.03, 0.02]) + 1)
    owner = draw.permutation(owner)
    stays = _stays(draw, age[owner], woman[owner])
    numbers = [f"S{number:06d}" for number in range(1, len(owner) + 1)]
    return pa.table({"stay_no": numbers, **{name: values[owner] for name, values in people.items()}, **stays})


def write_hospital_stays(path: str | os.PathLike[str], patients: int = PATIENTS, *, seed: int = 0) -> None:
    """The stays as a CSV file. An existing file is not replaced."""
    stays = hospital_stays(patients, seed=seed)
    rows = [stays.column_names, *zip(*stays.to_pydict().values(), strict=True)]
    with open(path, "x", encoding="utf-8", newline="") as file:
        file.writelines(";".join(row) + "\n" for row in rows)


def _stays(draw: np.random.Generator, age: np.ndarray, woman: np.ndarray) -> dict[str, np.ndarray]:
    """What differs from stay to stay: it depends on age, sex and ward."""
    rows, child = len(age), age < CHILD
    ward = np.where(draw.random(rows) < 0.5, "medicine", np.where(draw.random(rows) < 0.75, "surgery", "psychiatry"))
    ward = np.where(woman & (age < 45) & (draw.random(rows) < 0.6), "obstetrics", ward)
    ward = np.where(child, "paediatrics", ward)
    nights = draw.poisson([WARDS[name][1] for name in ward])
    admitted = LAST_DAY - draw.integers(0, DAYS, rows)
    weight = np.where(child, 4 + 3.2 * age, np.where(woman, 68, 81)) * draw.triangular(0.7, 0.97, 1.4, rows)
    smokes = draw.random(rows) < np.where(child, 0.0, np.where(ward == "psychiatry", 0.5, 0.2))
    emergency = draw.random(rows) < np.where(ward == "medicine", 0.55, np.where(ward == "surgery", 0.35, 0.15))
    return {
        "ward": ward,
        "diagnosis": np.array([draw.choice(WARDS[name][0]) for name in ward]),
        "admitted": _dates(admitted),
        "discharged": _dates(admitted + nights),
        "weight": _with_gaps(draw, np.char.replace(np.char.mod("%.1f", weight), ".", ","), 0.04, "n/a"),
        "smoker": _with_gaps(draw, np.where(smokes, "yes", "no"), 0.06, "unknown"),
        "emergency": np.where(emergency, "yes", "no"),
        "remarks": draw.choice(REMARKS, rows),
    }


def _with_gaps(draw: np.random.Generator, values: np.ndarray, share: float, word: str) -> np.ndarray:
    return np.where(draw.random(len(values)) < share, word, values)


def _dates(days: np.ndarray) -> np.ndarray:
    return np.array([day.strftime("%d.%m.%Y") for day in days.astype("datetime64[D]").tolist()])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Write the made-up hospital table.")
    arguments.add_argument("path", help="the CSV file to write")
    arguments.add_argument("--patients", type=int, default=PATIENTS)
    arguments.add_argument("--seed", type=int, default=0)
    write_hospital_stays(**vars(arguments.parse_args()))
