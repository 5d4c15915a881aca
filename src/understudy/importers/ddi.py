"""Reads the variables of a DDI-Codebook (version 2.5 and its predecessors), an XML file, by its public documentation.

Codes with labels are declared: a person wrote them. Statistics (`sumStat`, `catStat`) are never read. Where they stand
beside a range, or beside codes without labels, a tool filled in the file from the data, and so these are found, not
declared. A label that repeats its code is none.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from understudy.errors import SchemaError
from understudy.importers.draft import Draft, check_codes, column_error, of_column, unknown_type
from understudy.importers.values import to_number
from understudy.rules.values import format_list, format_value
from understudy.schema.column import MAX_DECIMALS, Column

_SOURCE = "the file has statistics beside them, and tools fill both in from the data"
_FORMATS = ("numeric", "character")
_MAX_LISTED = 50
"""A range of invalid values with more integers than this is not written as a list."""

_Element = ElementTree.Element


def is_ddi(text: str) -> bool:
    """Whether it is XML with the root of a code book."""
    start = re.sub(r"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(\[.*?\])?\s*>", "", text[:20_000], flags=re.DOTALL)
    return re.match(r"\s*<(\w+:)?codeBook\b", start) is not None


def read_ddi(text: str, draft: Draft) -> None:
    root = _parse(text)
    variables = [variable for section in _children(root, "dataDscr") for variable in _children(section, "var")]
    if not variables:
        raise SchemaError("The code book describes no variables (dataDscr/var). Export it with its variables.")
    for variable in _of_chosen_file(root, variables, draft):
        _declare_variable(variable, draft)


def _parse(text: str) -> _Element:
    """The root of an XML text. Document types are refused before they are read: their entities can expand endlessly."""

    def refuse(*_: object) -> None:
        raise SchemaError("It has a document type (<!DOCTYPE ...>), which is not read. Remove that declaration.")

    checker = expat.ParserCreate("utf-8")
    checker.StartDoctypeDeclHandler = refuse
    checker.EntityDeclHandler = refuse
    try:
        content = text.encode()
        checker.Parse(content, True)
        root = ElementTree.fromstring(content, ElementTree.XMLParser(encoding="utf-8"))
    except UnicodeEncodeError:
        raise SchemaError("It is not valid Unicode. Save it as UTF-8.") from None
    except (expat.ExpatError, ElementTree.ParseError) as error:
        line = getattr(error, "lineno", None) or getattr(error, "position", (0,))[0]
        raise SchemaError(f"It is not valid XML at line {line}: {expat.ErrorString(error.code)}.") from None
    if _tag(root) != "codeBook":
        raise SchemaError(f"Its root is {format_value(_tag(root))}, expected codeBook. Check that it is DDI-Codebook.")
    return root


def _tag(element: _Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: _Element, tag: str) -> Iterator[_Element]:
    return (child for child in element if _tag(child) == tag)


def _child_text(element: _Element, tag: str) -> str:
    """The text of the first child of this name; empty if there is none."""
    child = next(_children(element, tag), None)
    return "" if child is None else " ".join("".join(child.itertext()).split())


def _of_chosen_file(root: _Element, variables: Sequence[_Element], draft: Draft) -> list[_Element]:
    """The variables of one data file, if the code book describes several."""
    used = {element.get("files", "") for element in variables}
    if len(used) < 2:
        return list(variables)
    names = {}
    for described in _children(root, "fileDscr"):
        title = next((_child_text(element, "fileName") for element in _children(described, "fileTxt")), "")
        names[described.get("ID", "")] = title or described.get("ID", "")
    titles = {files: " ".join(names.get(file, file) for file in files.split()) for files in used}
    chosen = draft.choose_table(dict.fromkeys(titles[element.get("files", "")] for element in variables))
    return [element for element in variables if titles[element.get("files", "")] == chosen]


# ----------------------------------------------------------------------------------------------------------- variables


class _Code(NamedTuple):
    value: str
    label: str
    is_missing: bool
    is_found: bool
    """Whether there are statistics but no label of its own: then a tool found it in the data."""


def _declare_variable(variable: _Element, draft: Draft) -> None:
    name = variable.get("name", "")
    if not name:
        raise SchemaError(f"A variable has no name (ID {variable.get('ID')!r}). Name every variable.")
    codes = _codes(name, variable)
    valid = [code for code in codes if not code.is_missing]
    if label := _child_text(variable, "labl"):
        draft.comment(name, f'"{label[:120]}"')
    kind = _kind(name, variable, valid, draft)
    if kind is None:
        return
    numeric = kind in ("integer", "real")
    is_list = bool(valid) and kind in ("categorical", "integer", "real") and variable.get("intrvl") != "contin"
    ranges = _ranges(name, variable, "valrng")
    if ranges and _has_statistics(variable) and not is_list and not draft.trusts(name, _SOURCE):
        ranges = []
    decimals = _decimals(variable) if kind == "real" else None
    draft.declare(Column(name=name, kind=kind, decimals=decimals))
    invalid = [code.value for code in codes if code.is_missing] + _invalid(name, variable, draft)
    if is_list:
        outside = [code for code in valid if numeric and ranges and not _is_within(code.value, ranges)]
        if outside and not _has_statistics(variable):
            invalid += [code.value for code in outside]
            listed = format_list([code.value for code in outside])
            draft.leave_out(of_column(f"codes {listed}", name), "they are outside valrng: read as null")
            valid = [code for code in valid if code not in outside]
        _declare_codes(name, valid, variable, draft, numeric=numeric)
    else:
        _declare_ranges(name, ranges, draft, numeric=numeric)
        if valid and numeric:
            draft.comment(name, ", ".join(f"{code.value} = {code.label}" for code in valid if code.label)[:500])
    if invalid and kind != "text":
        missing = tuple(dict.fromkeys(_number(value) if numeric else value for value in invalid))
        draft.refine(name, of_column("missing values", name), missing=missing)


def _codes(name: str, variable: _Element) -> list[_Code]:
    codes = []
    for category in _children(variable, "catgry"):
        value = _child_text(category, "catValu")
        if not value:
            continue  # a heading of a group of codes
        label = _child_text(category, "labl")
        is_found = label in ("", value) and _has_statistics(variable)
        codes.append(_Code(value, label, category.get("missing", "N").upper() == "Y", is_found))
    check_codes(name, [code.value for code in codes])
    return codes


def _kind(name: str, variable: _Element, valid: Sequence[_Code], draft: Draft) -> str | None:
    """The kind of a variable; None if it was declared as a draft, or as text."""
    form = next(_children(variable, "varFormat"), None)
    type_name = None if form is None else form.get("type", "numeric").lower()
    if type_name is not None and type_name not in _FORMATS:
        raise unknown_type(name, type_name, _FORMATS)
    category = "" if form is None else form.get("category", "").lower()
    if category == "date":
        return "datetime" if form is not None and "time" in form.get("formatname", "").lower() else "date"
    if category == "time":
        draft.leave_unmodelled(name, "times of day are not modelled")
        return None
    numbers = [code for code in valid if to_number(code.value) is not None]
    if type_name == "numeric" and len(numbers) < len(valid):
        odd = next(code.value for code in valid if code not in numbers)
        said = f"it is numeric, but one of its codes is {format_value(odd)}"
        raise column_error(name, f"{said}. Mark that code as missing, or correct the type.")
    if type_name == "character" or (type_name is None and len(numbers) < len(valid)):
        return "categorical"
    if type_name is None and not valid:
        draft.guess(name, "categorical", "it has no varFormat")
        return None
    if _decimals(variable) is not None:
        return "real"
    is_integer = variable.get("dcml") == "0" or variable.get("intrvl") == "discrete"
    if not is_integer and valid and variable.get("intrvl") != "contin":
        is_integer = all(re.fullmatch(r"[-+]?\d+", code.value) for code in valid)
    return "integer" if is_integer else "real"


def _decimals(variable: _Element) -> int | None:
    text = variable.get("dcml", "")
    return int(text) if re.fullmatch(r"[1-9]\d?", text) and int(text) <= MAX_DECIMALS else None


def _has_statistics(variable: _Element) -> bool:
    """Whether a tool has computed statistics of the variable or of its codes. Their values are not read."""
    parents = ((variable, "sumStat"), *((category, "catStat") for category in _children(variable, "catgry")))
    return any(next(_children(parent, tag), None) is not None for parent, tag in parents)


def _declare_codes(name: str, valid: Sequence[_Code], variable: _Element, draft: Draft, *, numeric: bool) -> None:
    kept = [code for code in valid if not code.is_found or draft.trusts(name, _SOURCE)]
    if not kept:
        return
    draft.codes(
        name,
        [(_number(code.value) if numeric else code.value, code.label or None) for code in kept],
        closed=len(kept) == len(valid),
    )
    if variable.get("nature") == "ordinal" and len(kept) == len(valid):
        draft.refine(name, of_column("the order", name), ordinal=True)


# -------------------------------------------------------------------------------------------------------------- ranges


class _Range(NamedTuple):
    lower: str
    upper: str
    lower_is_strict: bool
    upper_is_strict: bool


def _ranges(name: str, variable: _Element, tag: str) -> list[_Range]:
    """The ranges of valid or of invalid values; a single value is a range of its own."""
    ranges = []
    for section in _children(variable, tag):
        for item in _children(section, "item"):
            value = item.get("VALUE", "")
            ranges.append(_Range(value, value, False, False))
        for item in _children(section, "range"):
            lower, upper = item.get("min", item.get("minExclusive", "")), item.get("max", item.get("maxExclusive", ""))
            ranges.append(_Range(lower, upper, "minExclusive" in item.attrib, "maxExclusive" in item.attrib))
    for interval in ranges:
        lower_end, upper_end = to_number(interval.lower), to_number(interval.upper)
        if lower_end is not None and upper_end is not None and lower_end > upper_end:
            said = f"the lower limit {interval.lower} of {tag} is above the upper limit {interval.upper}"
            raise column_error(name, f"{said}. Correct the file.")
    return ranges


def _declare_ranges(name: str, ranges: Sequence[_Range], draft: Draft, *, numeric: bool) -> None:
    """The smallest and the largest value of all ranges."""
    if not ranges:
        return
    what = of_column("valrng", name)
    if not numeric and draft.kind(name) == "categorical":
        draft.leave_out(what, "a list of strings has no range")
        return
    key = (lambda text: to_number(text) or 0) if numeric else str
    lowers = sorted((interval for interval in ranges if interval.lower), key=lambda interval: key(interval.lower))
    uppers = sorted((interval for interval in ranges if interval.upper), key=lambda interval: key(interval.upper))
    if len(lowers) == len(ranges):
        draft.limit(name, ">" if lowers[0].lower_is_strict else ">=", _number(lowers[0].lower), what)
    if len(uppers) == len(ranges):
        draft.limit(name, "<" if uppers[-1].upper_is_strict else "<=", _number(uppers[-1].upper), what)
    if len(ranges) > 1:
        draft.leave_out(f"gaps in {what}", "bounds are one interval")


def _invalid(name: str, variable: _Element, draft: Draft) -> list[str]:
    """The values in invalrng. A short range of integers is listed."""
    values = []
    for interval in _ranges(name, variable, "invalrng"):
        if interval.lower == interval.upper:
            values.append(interval.lower)
            continue
        whole = all(re.fullmatch(r"-?\d{1,18}", text) for text in (interval.lower, interval.upper))
        if whole and int(interval.upper) - int(interval.lower) < _MAX_LISTED:
            values += [str(value) for value in range(int(interval.lower), int(interval.upper) + 1)]
        else:
            what = of_column(f"invalrng {interval.lower} to {interval.upper}", name)
            draft.leave_out(what, "missing values are listed singly")
    return [value for value in values if value]


def _is_within(text: str, ranges: Sequence[_Range]) -> bool:
    value = float(text)
    ends = [(to_number(interval.lower), to_number(interval.upper)) for interval in ranges]
    return any((low is None or value >= low) and (high is None or value <= high) for low, high in ends)


def _number(text: str) -> int | float | str:
    """A number if the string writes one."""
    number = to_number(text)
    return text if number is None else number
