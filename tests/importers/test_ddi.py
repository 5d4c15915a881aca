"""DDI code books: every element on a realistic file, what is found and not declared, unsafe and damaged XML."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.schema.importing import import_or_complain, import_text
from understudy.errors import SchemaError
from understudy.schema import Column

CANARY = "271828"
"""A statistic of the data, which must not be read."""


def book(*variables: str, start: str = '<codeBook xmlns="ddi:codebook:2_5" version="2.5">') -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{start}<dataDscr>{"".join(variables)}</dataDscr></codeBook>'


def code(value: str, label: str = "", attributes: str = "", frequency: bool = False) -> str:
    labl = f"<labl>{label}</labl>" if label else ""
    stat = f'<catStat type="freq">{CANARY}</catStat>' if frequency else ""
    return f"<catgry {attributes}><catValu>{value}</catValu>{labl}{stat}</catgry>"


def variable(name: str, *parts: str, attributes: str = "", type_name: str = "numeric") -> str:
    form = f'<varFormat type="{type_name}"/>' if type_name else ""
    return f'<var name="{name}" {attributes}>{"".join(parts)}{form}</var>'


STATISTICS = f'<sumStat type="min">{CANARY}</sumStat><sumStat type="max">{CANARY}</sumStat>'
AGE = variable(
    "age",
    "<labl>Age in years</labl>",
    '<valrng><range UNITS="INT" min="0" max="120"/></valrng><invalrng><range min="997" max="999"/></invalrng>',
    code("120", "120 or older"),
    attributes='intrvl="contin" dcml="0"',
)
SEX = variable("sex", code("1", "Female"), code("2", "Male"), code("9", "Unknown", 'missing="Y"'))
SURVEY = book(
    AGE,
    SEX,
    variable("region", code("N", "North", "", True), code("S", "South"), type_name="character"),
    variable("town", type_name="character"),
    variable("income", '<valrng><range min="-5.5" max="1000000"/></valrng>', attributes='intrvl="contin" dcml="2"'),
    variable("health", code("1", "bad"), code("2", "fair"), code("3", "good"), attributes='nature="ordinal"'),
    variable("born", '<varFormat type="character" category="date"/>', type_name=""),
    variable("slept", '<varFormat type="character" category="time"/>', type_name=""),
)


def test_every_element():
    found = import_text(SURVEY)
    codes: dict = {"kind": "categorical", "closed": True}
    assert found.schema.columns == (
        Column(name="age", kind="integer", bounds=(0, 120), missing=(997, 998, 999)),
        Column(name="sex", categories=(1, 2), missing=(9,), **codes),
        Column(name="region", categories=("N", "S"), **codes),
        Column(name="town", kind="categorical"),
        Column(name="income", kind="real", decimals=2, bounds=(-5.5, 1e6)),
        Column(name="health", categories=(1, 2, 3), ordinal=True, **codes),
        Column(name="born", kind="date"),
        Column(name="slept", kind="text"),
    )
    assert found.comments["age"] == '"Age in years"; 120 = 120 or older'
    assert found.comments["sex"] == "1 = Female, 2 = Male"
    assert found.left_out == (
        'the values of column "slept": times of day are not modelled; it is declared as text, and left out.',
    )


def test_statistics_are_never_read_and_what_stands_beside_them_is_found_not_declared():
    text = book(
        variable("age", '<valrng><range min="17" max="90"/></valrng>', STATISTICS, attributes='intrvl="contin"'),
        variable("job", code("7", "", "", True), code("8", "", "", True)),
        variable("sex", code("1", "Female", "", True), code("2", "Male", "", True), code("3", "", "", True)),
    )
    found = import_text(text)
    assert found.schema["age"] == Column(name="age", kind="real")
    assert found.schema["job"] == Column(name="job", kind="integer")
    assert found.schema["sex"] == Column(name="sex", kind="categorical", categories=(1, 2))
    (line,) = found.left_out
    assert line.startswith('ranges and lists of values of columns "age", "job", "sex": the file has statistics')
    assert "--trust-ranges" in line
    trusted = import_text(text, trust_ranges=True)
    assert trusted.schema["age"].bounds == (17, 90)
    assert (trusted.schema["job"].categories, trusted.schema["sex"].categories) == ((7, 8), (1, 2, 3))
    assert CANARY not in found.to_toml() + trusted.to_toml()


def test_codes_outside_the_valid_range_are_missing():
    valid = '<valrng><range min="1" max="2"/></valrng>'
    found = import_text(book(variable("sex", valid, code("1", "F"), code("2", "M"), code("8", "refused"))))
    assert found.schema["sex"].categories == (1, 2)
    assert found.schema["sex"].missing == (8,)
    assert 'codes "8" of column "sex": they are outside valrng: read as null.' in found.left_out


def test_one_of_several_files():
    files = '<fileDscr ID="F1"><fileTxt><fileName>people.csv</fileName></fileTxt></fileDscr><fileDscr ID="F2"/>'
    text = book(
        variable("age", attributes='files="F1" intrvl="discrete"'),
        variable("size", attributes='files="F2"'),
        start=f'<codeBook xmlns="ddi:codebook:2_5">{files}',
    )
    assert import_text(text, table="people.csv").schema.names == ("age",)
    assert import_text(text, table="F2").schema.names == ("size",)
    with pytest.raises(SchemaError, match=r"describes 2 tables \(people.csv, F2\)"):
        import_text(text)
    with pytest.raises(SchemaError):
        import_text(text, table="peple.csv")
    import_text(book(AGE))
    with pytest.raises(SchemaError):
        import_text(book(AGE), table="people.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (book(variable("a", '<valrng><range min="9" max="1"/></valrng>')), "the lower limit 9 of valrng is above"),
        (book(variable("a", code("1", "x"), code("1", "y"))), "the code '1' is listed more than once"),
        (book(variable("a", code("x", "y"))), 'is numeric, but one of its codes is "x"'),
        (book(SEX, SEX), "Duplicate column names"),
        (book(variable("a", type_name="imaginary")), 'has the type "imaginary", which is unknown'),
        (book("<var ID='V1'/>"), "A variable has no name (ID 'V1')"),
        (book(), "describes no variables"),
        (book(SEX)[:-5], "is not valid XML at line 2"),
        ("<DDIInstance/>", "Its root is"),
        ("<?xml version='1.0'?><!DOCTYPE codeBook [<!ENTITY a 'b'>]>" + book(SEX)[39:], "has a document type"),
    ],
)
def test_contradictions_and_unsafe_files(content, message):
    with pytest.raises(SchemaError) as error:
        import_text(content, "ddi")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_entities_are_refused_before_they_expand():
    """A file of a few lines that would expand to gigabytes, and one that names a file of this machine."""
    levels = "".join(f"<!ENTITY e{i} '{10 * f'&e{i - 1};'}'>" for i in range(1, 12))
    for declared in (f"<!ENTITY e0 'x'>{levels}", "<!ENTITY e11 SYSTEM 'file:///etc/hostname'>"):
        with pytest.raises(SchemaError, match="document type"):
            import_text(f"<!DOCTYPE codeBook [{declared}]><codeBook>&e11;</codeBook>", "ddi")


@settings(max_examples=scaled(100))
@given(
    st.integers(0, len(SURVEY)), st.integers(0, 9), st.sampled_from(["", "<", '"', "&", "9", "Y", "<var/>", "é", "-"])
)
def test_a_damaged_code_book_is_a_schema_or_refused(at, length, inserted):
    import_or_complain(SURVEY[:at] + inserted + SURVEY[at + length :], "ddi")


@pytest.mark.parametrize(
    "parts",
    [
        (code("Oslo", "Oslo", "", True), code("Rome", "Rome", "", True)),
        (code("Oslo"), code("Rome"), STATISTICS),
        (code("Oslo", "", "", True), code("Rome")),
    ],
    ids=["labels that repeat the code", "statistics of the variable", "a frequency of one code"],
)
def test_codes_that_a_tool_filled_in_are_not_declared(parts):
    found = import_text(book(variable("town", *parts, type_name="character")))
    assert found.schema["town"] == Column(name="town", kind="categorical")
    assert "--trust-ranges" in found.left_out[0]


def test_a_range_beside_frequencies_is_not_declared():
    parts = ('<valrng><range min="17" max="93"/></valrng>', code("99", "unknown", 'missing="Y"', True))
    found = import_text(book(variable("age", *parts, attributes='intrvl="contin"')))
    assert found.schema["age"].bounds is None
