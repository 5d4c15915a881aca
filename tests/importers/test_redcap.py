"""REDCap data dictionaries: every field type on a realistic dictionary, contradictions, and damaged files."""

import csv
import io
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.schema.importing import import_or_complain, import_text
from understudy.errors import SchemaError
from understudy.importers.redcap import is_redcap
from understudy.schema import Column

HEADER = [
    *("Variable / Field Name", "Form Name", "Section Header", "Field Type", "Field Label"),
    *("Choices, Calculations, OR Slider Labels", "Field Note", "Text Validation Type OR Show Slider Number"),
    *("Text Validation Min", "Text Validation Max", "Identifier?", "Branching Logic (Show field only if...)"),
    *("Required Field?", "Custom Alignment", "Question Number (surveys only)", "Matrix Group Name", "Matrix Ranking?"),
    "Field Annotation",
]
API_HEADER = [
    *("field_name", "form_name", "section_header", "field_type", "field_label", "select_choices_or_calculations"),
    *("field_note", "text_validation_type_or_show_slider_number", "text_validation_min", "text_validation_max"),
    *("identifier", "branching_logic", "required_field", "custom_alignment", "question_number", "matrix_group_name"),
    *("matrix_ranking", "field_annotation"),
]


def field(name: str, type_name: str, **given: str) -> list[str]:
    row = dict.fromkeys(API_HEADER, "")
    row |= {"field_name": name, "form_name": "visit", "field_type": type_name, "field_label": f"<b>{name}</b>?"}
    short = {
        "choices": "select_choices_or_calculations",
        "validation": "text_validation_type_or_show_slider_number",
        "minimum": "text_validation_min",
        "maximum": "text_validation_max",
    }
    return list((row | {short.get(key, key): value for key, value in given.items()}).values())


def dictionary(*fields: list[str], header: list[str] = HEADER, delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([header, field("record_id", "text"), *fields])
    return text.getvalue()


STUDY = dictionary(
    field("family_name", "text", identifier="y"),
    field("age", "text", validation="integer", minimum="0", maximum="120", required_field="y"),
    field("height", "text", validation="number_1dp", minimum="50", maximum="250,5".replace(",", ".")),
    field("weight", "text", validation="number_comma_decimal", minimum="0,5", maximum="300"),
    field("seen", "text", validation="date_dmy", minimum="2020-01-01", maximum="31-12-2024"),
    field("left", "text", validation="datetime_seconds_mdy", minimum="2020-01-01 00:00:00", maximum="now"),
    field("sex", "radio", choices="1, Female | 2, Male | 9, Not, known", field_annotation="@DEFAULT='1'"),
    field("grade", "dropdown", choices="A, good | B, bad"),
    field("pregnant", "yesno", branching_logic="[sex] = '1'"),
    field("symptoms", "checkbox", choices="1, Fever | -1, None | NK, Not known"),
    field("pain", "slider", choices="none | some | worst"),
    field("bmi", "calc", choices="[weight]/([height]^2)"),
    field("ward", "sql", choices="select ..."),
    field("remarks", "notes"),
    field("mail", "text", validation="email"),
    field("photo", "file"),
    field("read_me", "descriptive"),
)


def test_every_type_of_field():
    found = import_text(STUDY)
    schema = found.schema
    codes: dict = {"kind": "categorical", "closed": True}
    assert schema.columns == (
        Column(name="record_id", kind="id"),
        Column(name="family_name", kind="text", drop=True),
        Column(name="age", kind="integer", bounds=(0, 120)),
        Column(name="height", kind="real", decimals=1, bounds=(50, 250.5)),
        Column(name="weight", kind="real", bounds=(0.5, 300)),
        Column(name="seen", kind="date", bounds=(date(2020, 1, 1), date(2024, 12, 31))),
        Column(name="left", kind="datetime"),
        Column(name="sex", categories=(1, 2, 9), **codes),
        Column(name="grade", categories=("A", "B"), **codes),
        Column(name="pregnant", kind="boolean", format="0/1"),
        *(Column(name=f"symptoms___{code}", kind="boolean", format="0/1") for code in ("1", "_1", "nk")),
        Column(name="pain", kind="integer", bounds=(0, 100)),
        Column(name="bmi", kind="real"),
        Column(name="ward", kind="categorical"),
        *(Column(name=name, kind="text") for name in ("remarks", "mail", "photo")),
        Column(name="visit_complete", categories=(0, 1, 2), **codes),
    )
    assert [rule.text for rule in schema.rules] == ["\"left\" >= TIMESTAMP '2020-01-01 00:00:00'"]
    assert found.comments["sex"] == '"sex ?"; 1 = Female, 2 = Male, 9 = Not, known'
    assert found.comments["symptoms___nk"] == '"symptoms ?"; checked: Not known'
    assert found.comments["pregnant"].endswith("shown only if [sex] = '1'")
    text = found.to_toml()
    assert '# "sex ?"; 1 = Female, 2 = Male' in text
    for line in (
        '"family_name": REDCap marks it as an identifier',
        'Required Field? ("age"): REDCap asks for a value but does not enforce it',
        'maximum of column "left": "now" is known only when a value is entered',
        'the values of column "mail": its validation is email; it is declared as text',
        'the formula of column "bmi"',
    ):
        assert line in text


def test_the_form_of_the_api_and_other_delimiters_give_the_same():
    fields = [field("age", "text", validation="integer", minimum="0", maximum="9")]
    plain = import_text(dictionary(*fields))
    assert import_text(dictionary(*fields, header=API_HEADER)) == plain
    assert import_text(dictionary(*fields, delimiter=";")) == plain
    assert not is_redcap("name,age\nx,1\n")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([field("a", "text", validation="integer", minimum="9", maximum="1")], "lower limit 9 (minimum of"),
        ([field("a", "text", validation="integer", minimum="low")], 'the minimum "low" is not a value'),
        ([field("a", "text", validation="date_dmy", minimum="2020-13-45")], "is not a bound"),
        ([field("a", "radio", choices="1, x | 1, y")], "the code '1' is listed more than once"),
        ([field("a", "checkbox", choices="1, x | 1, y")], "the code '1' is listed more than once"),
        ([field("a", "radio", choices="")], "has no choices of the form"),
        ([field("a", "radio", choices="1, x", minimum="0", maximum="3")], "choices and a minimum or maximum"),
        ([field("a", "text", validation="integer", choices="1, x")], "a list of choices, a contradiction"),
        ([field("a", "radio", choices="1, x | 2, y", field_annotation="@DEFAULT='3'")], "the default 3 is not among"),
        (
            [field("a", "text", validation="integer", minimum="0", maximum="5", field_annotation='@DEFAULT="7"')],
            "the default 7 is not among",
        ),
        ([field("a", "notes"), field("a", "notes")], "Duplicate column names"),
        ([field("a", "raido")], "has the type \"raido\", which is unknown. Did you mean 'radio'?"),
        ([field("a", "text", validation="roman")], 'has the type "roman", which is unknown'),
        ([field("", "text")], "Row 3 of the data dictionary has no field name"),
    ],
)
def test_contradictions_and_unknown_types(fields, message):
    if "not a bound" in message:  # a limit that is no date is listed, and bounds are estimated
        assert message in str(import_text(dictionary(*fields)).left_out)
        return
    with pytest.raises(SchemaError) as error:
        import_text(dictionary(*fields))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_header_without_choices_is_refused():
    with pytest.raises(SchemaError, match='no column "choices, calculations'):
        import_text("Variable / Field Name,Field Type\na,text\n")


WITHOUT_RULES = "".join(line for line in STUDY.splitlines(keepends=True) if not line.startswith("left,"))
"""Rules start a database engine, and damage is quicker without it."""


@settings(max_examples=scaled(100))
@given(
    st.integers(0, len(WITHOUT_RULES)),
    st.integers(0, 9),
    st.sampled_from(["", '"', "|", ",", "\n", "9", "\x00", "é", "[", "text"]),
)
def test_a_damaged_dictionary_is_a_schema_or_refused(at, length, inserted):
    import_or_complain(WITHOUT_RULES[:at] + inserted + WITHOUT_RULES[at + length :], "redcap")
