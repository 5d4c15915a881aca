"""MIMIC-III to one row a patient: which three-digit ICD-9 categories were ever recorded for them.

For those who have access to the database (it needs credentials): give its ADMISSIONS and DIAGNOSES_ICD tables, as CSV
(also compressed) or Arrow. The columns of the matrix are the formal categories of ICD-9-CM, which are public, or a list
that a person declares: categories that happen to occur must not be read off patients. Each row is one patient, the
protected unit; all admissions of a patient are brought together.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from understudy.errors import ConfigError, TableError
from understudy.schema import Column, Schema

_CODE = re.compile(r"E\d{3}|V\d{2}|\d{3}")


def icd9_categories() -> tuple[str, ...]:
    """The formal categories: 001 to 999, V01 to V91, E000 to E999. Not all of them have a meaning.

    >>> len(icd9_categories()), icd9_categories()[0], icd9_categories()[-1]
    (2090, '001', 'E999')
    """
    numbers = [f"{number:03}" for number in range(1, 1000)]
    return (*numbers, *(f"V{number:02}" for number in range(1, 92)), *(f"E{number:03}" for number in range(1000)))


def category(code: str) -> str:
    """The category of an ICD-9 code, written with or without its point.

    >>> category("4019"), category("V3001"), category("E8788"), category("250.00")
    ('401', 'V30', 'E878', '250')
    """
    plain = code.strip().strip('"').replace(".", "").upper()
    return plain[: 4 if plain.startswith("E") else 3]


def patient_matrix(
    admissions: "pa.Table | str | os.PathLike[str]",
    diagnoses: "pa.Table | str | os.PathLike[str]",
    *,
    codes: Sequence[str] | None = None,
    rows: int | None = None,
) -> tuple[pa.Table, Schema]:
    """A boolean table with a row for every patient of `admissions`, and the schema that declares it.

    `codes` is a declared list of categories, such as those of a public coding manual; left out, all formal ones. What
    is recorded outside the list is left out by that public rule. `rows` is the number of patients if it may be
    declared; without it, fitting estimates it privately. Patients are in the order of their numbers, which are not
    kept and do not depend on their admissions.
    """
    listed = icd9_categories() if codes is None else tuple(codes)
    if not listed or len(set(listed)) != len(listed):
        raise ConfigError("codes must be a list of different categories, at least one.", setting="codes")
    for code in listed:
        if not _CODE.fullmatch(code):
            raise ConfigError(f"codes are categories such as 401, V30 or E878; found {code!r}.", setting="codes")
    patients = np.unique(_numbers(_read(admissions, "ADMISSIONS"), "ADMISSIONS").drop_null().to_numpy())
    listed_codes = _read(diagnoses, "DIAGNOSES_ICD")
    subject = _numbers(listed_codes, "DIAGNOSES_ICD")
    icd9 = _of(listed_codes, "DIAGNOSES_ICD", "ICD9_CODE").cast(pa.string())
    known = pc.and_(pc.is_valid(subject), pc.is_valid(icd9))
    subject, icd9 = subject.filter(known), icd9.filter(known).combine_chunks().dictionary_encode()
    place = {code: number for number, code in enumerate(listed)}
    of_value = np.array([place.get(category(code), -1) for code in icd9.dictionary.to_pylist()], dtype=int)
    row, column = np.searchsorted(patients, subject.to_numpy()), np.r_[of_value, -1][icd9.indices.to_numpy()]
    found = np.zeros((len(listed), len(patients)), dtype=bool)  # a column at a time is what Arrow takes
    kept = (column >= 0) & (row < len(patients))
    kept[kept] = patients[row[kept]] == subject.to_numpy()[kept]
    found[column[kept], row[kept]] = True
    table = pa.table({code: found[number] for number, code in enumerate(listed)})
    schema = Schema(columns=tuple(Column(name=code, kind="boolean", nullable=False) for code in listed), rows=rows)
    return table, schema


def _numbers(table: pa.Table, what: str) -> pa.ChunkedArray:
    """The numbers of the patients. Arrow's own error would show the value that is not a number."""
    try:
        return _of(table, what, "SUBJECT_ID").cast(pa.int64())
    except pa.ArrowInvalid:
        raise TableError(
            f"SUBJECT_ID of {what} must hold whole numbers. Check that it is that table.", column="SUBJECT_ID"
        ) from None


def _of(table: pa.Table, what: str, name: str) -> pa.ChunkedArray:
    """A column by its name, in any case: copies of the database differ in it."""
    for found in table.column_names:
        if found.upper() == name:
            return table.column(found)
    raise TableError(
        f"{what} has no column {name}; expected the layout of MIMIC-III. Check that it is that table.", column=name
    )


def _read(source: "pa.Table | str | os.PathLike[str]", what: str) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    path = Path(source)
    if not path.exists():
        raise TableError(f"{path.name} does not exist: it should hold MIMIC-III's table {what}.")
    with pacsv.open_csv(path) as reader:  # codes such as 0389 must stay text
        names = reader.schema.names
    texts = {name: pa.string() for name in names if name.upper() == "ICD9_CODE"}
    wanted = [name for name in names if name.upper() in ("SUBJECT_ID", "ICD9_CODE")]
    options = pacsv.ConvertOptions(column_types=texts, include_columns=wanted)
    return pacsv.read_csv(path, convert_options=options)
