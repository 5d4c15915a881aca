"""Reads SQL `CREATE TABLE` statements of any dialect: types, NOT NULL, CHECK, keys, generated columns.

Nothing is executed. The statement is split into columns and clauses by its words; conditions are parsed as SQL where
they become rules. Clauses that say nothing about values (DEFAULT, COLLATE, ENGINE and so on) are skipped, and so are
the rows of a dump (COPY, INSERT): they are private, so nothing of them may decide what is read.

A general parser of SQL does not do this: it reads one dialect at a time, stops at the rows of a dump, and quotes them
in its messages.
"""

import csv
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from understudy.errors import SchemaError
from understudy.importers.draft import WHOLE_TABLE, Draft, duplicate_column, of_column, one_line, unknown_type
from understudy.importers.values import sql_name, to_number
from understudy.rules.keys import read_lookup
from understudy.rules.values import format_value
from understudy.schema.column import MAX_DECIMALS, Column


def is_ddl(text: str) -> bool:
    """Whether a script creates a table."""
    return re.search(r"\bcreate(\s+\w+){0,3}\s+table\b", text[:100_000], re.IGNORECASE) is not None


def read_ddl(text: str, draft: Draft) -> None:
    tables, enums = _parse(text, draft)
    table = _chosen_table(tables, draft)
    keys = {tuple(key) for key in table.keys}
    for name, column in table.columns.items():
        draft.declare(_column(name, column, enums, draft, is_key=(name,) in keys))
    if len(table.columns) == 0:
        raise SchemaError("Its CREATE TABLE has no columns. Write them with their types.")
    _read_keys(table, draft)
    for expression in table.checks:
        draft.condition(expression, f"CHECK ({one_line(expression)})")
    for name, column in table.columns.items():
        if column.generated is not None:
            what = f"generated column {format_value(name)}"
            draft.condition(f"{sql_name(name)} = ({column.generated})", what)
        draft.default(name, column.default)
    _read_references(table, tables, draft)


# ---------------------------------------------------------------------------------------------------------------- words


class _Token(NamedTuple):
    text: str
    word: str
    """The word in lower case; empty for a string, so that it is never taken for a keyword."""
    name: str | None
    """It as a name, without quotes; None if it cannot be one."""


_QUOTED = {
    False: r"(?P<text>[nN]?'(?:[^']|'')*'|[eE]'(?:[^'\\]|''|\\.)*')|(?P<double>\"(?:[^\"]|\"\")*\")",
    True: r"(?P<text>[eEnN]?'(?:[^'\\]|''|\\.)*')|(?P<double>\"(?:[^\"\\]|\"\"|\\.)*\")",
}
"""Strings, without and with backslashes as escapes, as MySQL has them."""
_TOKEN = {
    escapes: re.compile(
        r"(?P<comment>--[^\n]*|/\*.*?\*/|\#[^\n]*|^\\[^\n]*)|(?P<end>^[ \t]*[gG][oO][ \t\r]*$)|" + quoted + r"|"
        r"(?P<dollars>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)|(?P<tick>`(?:[^`]|``)*`)|(?P<bracket>\[[A-Za-z_][^\]]*\])"
        r"|(?P<word>[^\W\d][\w$]*)|(?P<number>\d[\w.]*)|(?P<sign>::|<=|>=|<>|!=|\|\||\S)",
        re.DOTALL | re.MULTILINE,
    )
    for escapes, quoted in _QUOTED.items()
}
_ESCAPED_QUOTE, _TWO_QUOTES = "\\'", "''"
_DEFINITION = re.compile(r"^(?:create|alter)[ \t]", re.IGNORECASE | re.MULTILINE)
"""The start of a statement even if the one before has no semicolon, as in Transact-SQL."""
_COPIED_ROWS = re.compile(r"[^\n]*\n(?:.*?\n)??\\\.[ \t\r]*$", re.DOTALL | re.MULTILINE)
"""The rest of the line of COPY ... FROM stdin; and all lines up to the one that ends the rows."""


def _tokens(text: str, *, escapes: bool = False) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while found := _TOKEN[escapes].search(text, at):
        whole, at = found[0], found.end()
        match found.lastgroup:
            case "comment":
                continue
            case "end":
                tokens.append(_Token(";", ";", None))
            case "double" | "tick" | "bracket":
                mark = "]" if whole[0] == "[" else whole[0]
                name = whole[1:-1].replace(mark * 2, mark)
                tokens.append(_Token('"' + name.replace('"', '""') + '"', "", name))
            case "text":
                inner = whole[whole.index("'") + 1 : -1]
                is_escaped = escapes or whole[0] in "eE"
                tokens.append(
                    _Token(f"'{inner.replace(_ESCAPED_QUOTE, _TWO_QUOTES) if is_escaped else inner}'", "", None)
                )
            case "dollars":
                inner = whole[len(found["tag"]) + 2 : -len(found["tag"]) - 2]
                tokens.append(_Token("'" + inner.replace("'", _TWO_QUOTES) + "'", "", None))
            case "word":
                if _DEFINITION.match(text, found.start()):
                    tokens.append(_Token(";", ";", None))
                tokens.append(_Token(whole, whole.lower(), whole))
            case _:
                tokens.append(_Token(whole, whole, None))
        if whole == ";" and _copies_rows(tokens):
            rows = _COPIED_ROWS.match(text, at)
            at = rows.end() if rows else len(text)
            tokens.extend([] if rows else [_UNFINISHED])
    return tokens


_UNFINISHED = _Token("'", "'", None)
"""A quote that starts no string; also stands for rows of COPY that do not end."""


def _copies_rows(tokens: Sequence[_Token]) -> bool:
    """Whether the last statement is COPY ... FROM stdin, which rows follow."""
    start = next((at for at in range(len(tokens) - 2, -1, -1) if tokens[at].word == ";"), -1) + 1
    words = [token.word for token in tokens[start:]]
    return words[0] == "copy" and ("from", "stdin") in itertools.pairwise(words)


def _split(tokens: Sequence[_Token], separator: str, *, anywhere: bool = False) -> list[list[_Token]]:
    """The parts between separators outside of parentheses, or anywhere."""
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.word == "(") - (token.word == ")")
        if token.word == separator and (anywhere or depth <= 0):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _group(tokens: Sequence[_Token], start: int) -> list[_Token] | None:
    """The tokens inside the first parentheses from `start` on; None if there are none, or they do not close."""
    opening = next((at for at in range(start, len(tokens)) if tokens[at].word == "("), len(tokens))
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].word == "(") - (tokens[at].word == ")")
        if depth == 0:
            return list(tokens[opening + 1 : at])
    return None


_BEFORE_PARENTHESES = frozenset(
    ("and", "as", "between", "case", "else", "in", "is", "like", "not", "or", "then", "when")
)


def _sql(tokens: Sequence[_Token]) -> str:
    """Tokens as SQL text, spaced as people write it."""
    text, before = "", None
    for token in tokens:
        is_call = token.word == "(" and before is not None and before.name and before.word not in _BEFORE_PARENTHESES
        joined = before is None or before.word in ("(", ".", "::") or token.word in (")", ",", ".", "::") or is_call
        text += token.text if joined else f" {token.text}"
        before = token
    return text


def _without_text_casts(tokens: Sequence[_Token]) -> list[_Token]:
    """Tokens without casts to text, which PostgreSQL adds to every condition about strings when it writes a dump."""
    kept = list(tokens)
    for at in reversed(range(len(kept) - 1)):
        if kept[at].word == "::" and _TYPES.get(kept[at + 1].word) == "categorical":
            words = [token.word for token in kept[at + 2 : at + 5]]
            length = 2 + (words[:1] == ["varying"])
            length += 2 * (words[length - 2 : length] == ["[", "]"])
            del kept[at : at + length]
    return kept


def _without_arrays(tokens: Sequence[_Token]) -> list[_Token]:
    """Tokens with IN (...) for = ANY (ARRAY[...]), which PostgreSQL writes in a dump."""
    words = [token.word for token in tokens]
    for at in range(len(tokens) - 1):
        inner = _group(tokens, at + 2) if words[at : at + 3] == ["=", "any", "("] else None
        if inner is None:
            continue
        end = at + 4 + len(inner)
        listed = [token for token in inner if token.word not in ("(", ")")]
        if [token.word for token in listed[:2]] == ["array", "["] and listed[-1].word == "]":
            items = [_Token("IN", "in", "IN"), _Token("(", "(", None), *listed[2:-1], _Token(")", ")", None)]
            return [*tokens[:at], *items, *_without_arrays(tokens[end:])]
    return list(tokens)


def _unquote(token: _Token) -> str | None:
    """The content of a quoted string; None if the token is not a string."""
    return token.text[1:-1].replace("''", "'") if token.text.startswith("'") else None


# --------------------------------------------------------------------------------------------------------------- tables


@dataclasses.dataclass
class _ColumnClauses:
    """What a definition says about one column."""

    type_words: list[_Token]
    not_null: bool = False
    generated: str | None = None
    default: str | int | float | None = None


class _Reference(NamedTuple):
    columns: tuple[str, ...]
    table: str
    other_columns: tuple[str, ...]


@dataclasses.dataclass
class _Table:
    name: str
    columns: dict[str, _ColumnClauses] = dataclasses.field(default_factory=dict)
    checks: list[str] = dataclasses.field(default_factory=list)
    keys: list[list[str]] = dataclasses.field(default_factory=list)
    unique: list[list[str]] = dataclasses.field(default_factory=list)
    references: list[_Reference] = dataclasses.field(default_factory=list)


_CLAUSES = frozenset(
    ("constraint", "not", "null", "primary", "unique", "check", "default", "references", "generated", "as", "comment")
) | {
    *("auto_increment", "autoincrement", "identity", "collate", "charset", "on", "stored", "virtual", "persisted"),
    *("foreign", "key", "encode", "match", "deferrable", "initially", "invisible", "visible", "compression", "storage"),
}
"""Words that start a clause after the type of a column."""

_TABLE_ITEMS = frozenset(("constraint", "primary", "unique", "check", "foreign", "key", "index", "fulltext", "spatial"))
_TABLE_ITEMS |= {"exclude", "like", "period"}
"""Words that start an item that is not a column."""


def _definitions(text: str) -> list[list[_Token]]:
    """The statements that define something. Whether a backslash escapes a quote depends on the dialect: if both ways
    of reading make sense, they must agree, so that no string can hide a constraint."""
    readings = []
    for escapes in (False, True):
        tokens = _tokens(text, escapes=escapes)
        if _UNFINISHED not in tokens:
            # Split at every semicolon: a parenthesis that is not closed must not hide the next statement.
            definitions = [statement for statement in _split(tokens, ";", anywhere=True) if _defines(statement)]
            if definitions not in readings:
                readings.append(definitions)
    if not readings:
        raise SchemaError("A string or the rows of a COPY have no end. Close them, or remove the rows from the script.")
    if len(readings) > 1:
        raise SchemaError(
            "It has a backslash before a quote, and strings can be read in two ways. Remove the rows (INSERT) from the"
            " script, and write a quote in a string as two quotes."
        )
    return readings[0]


def _defines(statement: Sequence[_Token]) -> bool:
    words = [token.word for token in statement[:5]]
    return words[0] in ("create", "alter") and not {"table", "type", "domain"}.isdisjoint(words)


def _parse(text: str, draft: Draft) -> tuple[dict[str, _Table], dict[str, list[str]]]:
    """The tables and the enumerated types that a script creates. Its other statements are skipped."""
    tables: dict[str, _Table] = {}
    enums: dict[str, list[str]] = {}
    for statement in _definitions(text):
        words = [token.word for token in statement]
        if words[0] == "create" and "table" in words[:5]:
            table = _parse_table(statement, words.index("table") + 1)
            tables[table.name.lower()] = table
        elif words[:2] == ["create", "type"] and "enum" in words:
            enums[_qualified_name(statement, 2)[0].lower()] = _labels(statement)
        elif words[:2] == ["alter", "table"] and "add" in words:  # where PostgreSQL dumps put the keys
            name, _ = _qualified_name(statement, 2 + (words[2:3] == ["only"]))
            if name.lower() in tables:
                _parse_item(statement[words.index("add") + 1 :], None, tables[name.lower()])
        elif words[:2] == ["create", "domain"]:
            draft.leave_out(one_line(_sql(statement))[:60], "domains are not read; write its type instead")
    return tables, enums


def _qualified_name(tokens: Sequence[_Token], at: int) -> tuple[str, int]:
    """A name, perhaps qualified by its schema, and where it ends."""
    name = tokens[at].name if at < len(tokens) else None
    while at + 2 < len(tokens) and tokens[at + 1].word == "." and tokens[at + 2].name is not None:
        at += 2
        name = tokens[at].name
    if name is None:
        raise SchemaError("Its CREATE TABLE has no name. Write CREATE TABLE name (column type, ...).")
    return name, at + 1


def _parse_table(statement: Sequence[_Token], at: int) -> _Table:
    if [token.word for token in statement[at : at + 3]] == ["if", "not", "exists"]:
        at += 3
    name, at = _qualified_name(statement, at)
    body = _group(statement, at) if at < len(statement) and statement[at].word == "(" else None
    if body is None:
        raise SchemaError(
            f"CREATE TABLE {name} has no list of columns in parentheses. Write CREATE TABLE {name} (column type, ...)."
        )
    table = _Table(name)
    for item in _split(body, ","):
        # A column may be called "key", but then its type follows.
        if item[0].word in _TABLE_ITEMS and not (len(item) > 1 and item[1].word in _TYPES):
            _parse_item(item, None, table)
        elif item[0].name is not None:
            column = item[0].name
            end = next((i for i in range(1, len(item)) if item[i].word in _CLAUSES), len(item))
            if column in table.columns:
                raise duplicate_column(column)
            table.columns[column] = _ColumnClauses(item[1:end])
            _parse_item(item[end:], column, table)
        else:
            raise SchemaError(f"CREATE TABLE {name} has a column without a name: {_sql(item)[:40]!r}.")
    return table


def _parse_item(item: Sequence[_Token], column: str | None, table: _Table) -> None:
    """The clauses of a column, or of a constraint of the table."""
    words = [token.word for token in item]
    depth = 0
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth:
            continue
        names = _names(_group(item, at)) if column is None else [column]
        if word == "not" and words[at + 1 : at + 2] == ["null"] and column is not None:
            table.columns[column].not_null = True
        elif word == "primary":
            table.keys.append(names)
        elif word == "default" and column is not None:
            table.columns[column].default = _constant(item[at + 1 :])
        elif word == "unique" or (word == "key" and words[at - 1 : at] == ["unique"]):
            table.unique.append(names)
        elif word == "check":
            table.checks.append(_sql(_without_arrays(_without_text_casts(_group(item, at) or []))))
        elif word == "as" and column is not None and words[at + 1 : at + 2] == ["("]:
            table.columns[column].generated = _sql(_group(item, at) or [])
        elif word == "references":
            local = _names(_group(item[:at], 0)) if column is None else [column]  # of FOREIGN KEY (...)
            other, end = _qualified_name(item, at + 1)
            others = _names(_group(item, end)) if words[end : end + 1] == ["("] else []
            table.references.append(_Reference(tuple(local), other, tuple(others)))
            return  # ON DELETE SET NULL is not a clause of the column


def _names(tokens: Sequence[_Token] | None) -> list[str]:
    return [token.name for token in tokens or () if token.name is not None]


def _labels(tokens: Sequence[_Token]) -> list[str]:
    return [text for token in tokens if (text := _unquote(token)) is not None]


def _constant(tokens: Sequence[_Token]) -> str | int | float | None:
    """The string or the number at the start; None for anything else, such as a function."""
    sign = -1 if tokens[:1] and tokens[0].text == "-" else 1
    first, after = (*tokens[sign < 0 :][:2], None, None)[:2]
    if first is None or (after is not None and after.word not in _CLAUSES and after.word != "::"):
        return None  # such as 100 - 50
    if (text := _unquote(first)) is not None:
        return text
    number = to_number(first.text)
    return None if number is None else sign * number


def _chosen_table(tables: Mapping[str, _Table], draft: Draft) -> _Table:
    """The named table, the one table, or the one that no other table refers to."""
    if not tables:
        raise SchemaError("It creates no table. Write CREATE TABLE name (column type, ...).")
    referred = {reference.table.lower() for table in tables.values() for reference in table.references}
    roots = [table.name for name, table in tables.items() if name not in referred]
    is_clear = len(roots) == 1 and not draft.has_table
    return tables[draft.choose_table(roots if is_clear else [table.name for table in tables.values()]).lower()]


# ---------------------------------------------------------------------------------------------------------------- types

_WORDS_OF_KINDS = {
    "integer": """int integer bigint smallint tinyint mediumint int2 int4 int8 int16 int32 int64 hugeint serial
        bigserial smallserial year uint8 uint16 uint32 uint64 utinyint usmallint uinteger ubigint byteint long""",
    "real": """real float double float4 float8 float32 float64 binary_float binary_double decimal numeric number dec
        money smallmoney""",
    "boolean": "bool boolean bit logical",
    "date": "date",
    "datetime": "timestamp timestamptz datetime datetime2 smalldatetime datetimeoffset",
    "categorical": """char character varchar varchar2 nvarchar nvarchar2 nchar national text string bpchar enum
        tinytext citext""",
    "id": "uuid uniqueidentifier",
    "text": """clob nclob mediumtext longtext ntext blob bytea binary varbinary json jsonb xml time timetz interval
        geometry geography array struct map""",
}
_TYPES = {word: kind for kind, words in _WORDS_OF_KINDS.items() for word in words.split()}


def _column(
    name: str, clauses: _ColumnClauses, enums: Mapping[str, Sequence[str]], draft: Draft, *, is_key: bool
) -> Column:
    nullable = not (clauses.not_null or is_key)
    words = [token.word for token in clauses.type_words if token.word]
    type_name = next((token.name for token in reversed(clauses.type_words) if token.name is not None), "").lower()
    arguments = _group(clauses.type_words, 0) or []
    if is_key:
        return Column(name=name, kind="id", nullable=False)
    labels = _labels(arguments) if words[:1] == ["enum"] else enums.get(type_name)
    if labels:
        listed = tuple(dict.fromkeys(labels))
        return Column(name=name, kind="categorical", nullable=nullable, categories=listed, closed=True)
    kind = _TYPES.get(words[0]) if words else None
    if "[" in words or words[-1:] == ["array"]:
        kind = "text"  # lists have no kind
    if kind == "text":
        why = f"{one_line(_sql(clauses.type_words))} has no kind; it is declared as text, and left out"
        draft.leave_out(of_column("the values", name), why)
    if kind is None:
        raise unknown_type(name, _sql(clauses.type_words) or "none", list(_TYPES))
    if words[0] == "tinyint" and [token.text for token in arguments] == ["1"]:
        kind = "boolean"  # as MySQL writes booleans
    decimals = _decimals(words[0], arguments)
    if decimals == 0:
        kind = "integer"
    in_range = decimals is not None and 0 < decimals <= MAX_DECIMALS
    return Column(name=name, kind=kind, nullable=nullable, decimals=decimals if in_range else None)


def _decimals(word: str, arguments: Sequence[_Token]) -> int | None:
    """The scale of a decimal type. Without a precision, dialects differ, so nothing is declared."""
    if word in ("money", "smallmoney"):
        return 4
    numbers = [int(token.text) for token in arguments if token.text.isdecimal() and len(token.text) < 4]
    if word not in ("decimal", "numeric", "number", "dec") or not numbers:
        return None
    return numbers[1] if len(numbers) > 1 else 0


# ----------------------------------------------------------------------------------------------------------------- keys


def _read_keys(table: _Table, draft: Draft) -> None:
    for key in table.keys:
        if len(key) > 1:
            draft.leave_out(f"PRIMARY KEY ({', '.join(key)})", WHOLE_TABLE)
            for name in key:
                draft.not_null(name, f"PRIMARY KEY ({', '.join(key)})")
    for names in table.unique:
        draft.leave_out(f"UNIQUE ({', '.join(names)})", WHOLE_TABLE)


def _read_references(table: _Table, tables: Mapping[str, _Table], draft: Draft) -> None:
    """Foreign keys with a given lookup table: the key determines shared columns; without any, its values are listed."""
    files = {name.lower(): path for name, path in draft.lookups.items()}
    for name in draft.lookups:
        if name.lower() not in {reference.table.lower() for reference in table.references}:
            raise SchemaError(
                f"There is no foreign key to a table {name!r}, so its lookup table is not used. Check the name."
            )
    for reference in table.references:
        what = f"FOREIGN KEY ({', '.join(reference.columns)}) REFERENCES {reference.table}"
        path = files.get(reference.table.lower())
        if path is None:
            draft.leave_out(
                what, f"it needs the rows of that table: --lookup {reference.table}=FILE.csv, if it is public"
            )
        else:
            # The referenced columns: as written, else the primary key of that table, else those of the same names.
            other = tables.get(reference.table.lower())
            others = reference.other_columns or tuple(other.keys[0] if other and other.keys else reference.columns)
            _read_lookup(reference, path, others, what, draft)


def _read_lookup(reference: _Reference, path: str, others: Sequence[str], what: str, draft: Draft) -> None:
    if len(others) != len(reference.columns):
        draft.leave_out(what, f"it has {len(reference.columns)} columns, but refers to {len(others)}")
        return
    shared = [name for name in _header(path) if name in draft.names and name not in (*reference.columns, *others)]
    width = len(reference.columns)
    rows = [row for row in read_lookup(path, (*others, *shared)) if all(row[:width])]
    for at, name in enumerate((*reference.columns, *shared)):
        _declare_listed(name, [row[at] for row in rows], what, draft, is_key=at < width)
    if shared:
        entry = {"determines": list(reference.columns), "gives": shared, "table": [list(row) for row in rows]}
        draft.rule(entry, what)
    elif width > 1:
        draft.rule({"combinations": list(reference.columns), "allowed": [list(row) for row in rows]}, what)


def _header(path: str) -> list[str]:
    """The columns of a CSV file. Errors in the file are reported when its rows are read."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _declare_listed(name: str, values: Sequence[object], what: str, draft: Draft, *, is_key: bool) -> None:
    """Values of a lookup table as categories. Numbers stay numbers unless they are a key."""
    kind = draft.kind(name)
    strings = [str(value) for value in dict.fromkeys(values) if value not in (None, "")]
    if is_key and kind == "integer" and all(re.fullmatch(r"[-+]?\d{1,18}", text) for text in strings):
        draft.choices(name, [int(text) for text in strings], what)
    elif kind == "categorical":
        draft.choices(name, strings, what)
