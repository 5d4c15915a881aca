"""Damage to files: bytes, lines, words, and nodes of JSON. The same generator gives the same damage."""

import contextlib
import io
import json
import random
import re
import sqlite3
import zipfile
from collections.abc import Callable
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**63, 10**40, 1e308, -1e-320, float("nan"), float("inf")),
    *("", " ", "x" * 3000, "NaN", "null", "2020-13-45", "é\u0301\u202e", "\x00", "\x1b[31m", "a\nb", "../../x", "';--"),
    *([], {}, [[]], {"": {}}, [None], ["a", 1], "1e999", "0x1p-3"),
)
ODD_WORDS = (
    *(
        "",
        "-1",
        "0",
        "1e999",
        "nan",
        "inf",
        "null",
        "true",
        "[]",
        "{}",
        '""',
        "'",
        '"',
        "\\",
        "\x00",
        "\ufeff",
        "\u2028",
    ),
    *(
        "[" * 5000,
        "99999999999999999999999",
        "2020-13-45",
        "= =",
        "[[",
        "]]",
        "#",
        ",,",
        ";",
        "\t",
        "é",
        "\x1b[31m",
        "<!--",
        "&x;",
        "x" * 3000,
    ),
)
Damage = Callable[[bytes, random.Random], bytes]


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """One to four changes: bytes flipped, set, removed, inserted or repeated; blocks moved; the end cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, width = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 64, 512))
        if rng.random() < 0.3:  # what says how a file is to be read stands at its ends
            at = rng.choice((rng.randrange(min(len(data), 64) + 1), max(0, len(data) - rng.randrange(64))))
        block = data[at : at + width]
        action = rng.randrange(8)
        if action == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            data[at : at + width] = rng.randbytes(len(block))
        elif action == 2:
            data[at : at + width] = b""
        elif action == 3:
            data[at:at] = rng.randbytes(width)
        elif action == 4:
            data[at:at] = block
        elif action == 5:
            data[at : at + width] = rng.choice((b"\x00", b"\xff", b"\n", b",", b'"')) * len(block)
        elif action == 6:
            other = rng.randrange(len(data) + 1)
            data[other : other + len(block)] = block
        else:
            del data[at:]
    return bytes(data)


def damage_text(content: bytes, rng: random.Random) -> bytes:
    """One to three words replaced, or lines removed, repeated, swapped or joined; now and then bytes as well."""
    if rng.random() < 0.2:
        return damage_bytes(content, rng)
    text = content.decode()
    for _ in range(rng.choice((1, 1, 2, 3))):
        lines = text.split("\n")
        at, other, action = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(9)
        if action < 4:
            words = list(re.finditer(r"[\w.]+|[^\w\s]", text))
            if words:
                word = rng.choice(words)
                new = rng.choice(ODD_WORDS) if rng.random() < 0.7 else rng.choice(words)[0]
                text = text[: word.start()] + new + text[word.end() :]
            continue
        if action == 4:
            del lines[at]
        elif action == 5:
            lines.insert(other, lines[at])
        elif action == 6:
            lines[at], lines[other] = lines[other], lines[at]
        elif action == 7:
            lines[at : at + 2] = ["".join(lines[at : at + 2])]
        else:
            lines[at] += rng.choice(ODD_WORDS)
        text = "\n".join(lines)
    return text.encode("utf-8", "surrogatepass")


def damage_json(content: bytes, rng: random.Random) -> bytes:
    """Nodes replaced, removed, renamed, repeated or exchanged; now and then the text itself is damaged."""
    if rng.random() < 0.2:
        return damage_text(content, rng)
    tree = {"": json.loads(content)}
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        parent, key = rng.choice(places)
        if not (key in parent if isinstance(parent, dict) else key < len(parent)):
            continue
        action = rng.randrange(6)
        if action < 3:
            parent[key] = rng.choice(ODD_VALUES)
        elif action == 3 and key != "":
            del parent[key]
        elif action == 4 and isinstance(parent, dict) and key != "":
            parent[rng.choice(("", "x", "name", str(key).upper()))] = parent.pop(key)
        else:
            other, there = rng.choice(places)
            if there in other if isinstance(other, dict) else there < len(other):
                parent[key] = json.loads(json.dumps(other[there]))
    return json.dumps(tree.get("")).encode()


def _places(node: Any):
    """Every value in a tree, as its container and its key."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _places(node[key])


def damage_database(content: bytes, rng: random.Random) -> bytes:
    """A value of a SQLite file is replaced, or a row, a column or a table changed; or its bytes are damaged."""
    if rng.random() < 0.4:
        return damage_bytes(content, rng)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(tables)
        column = rng.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
        some, value = (
            f"rowid % {rng.choice((1, 2, 7))} = 0",
            rng.choice((None, -1, 1e308, "", "x", "[" * 5000, b"\xff")),
        )
        statement, values = rng.choice(
            [
                *[(f'UPDATE "{table}" SET "{column}" = ? WHERE {some}', (value,))] * 3,
                (f'DELETE FROM "{table}" WHERE {some}', ()),
                (f'DROP TABLE "{table}"', ()),
                (f'ALTER TABLE "{table}" RENAME TO "other"', ()),
                (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO ""', ()),
                (f'ALTER TABLE "{table}" ADD COLUMN "odd" BLOB', ()),
                (f'INSERT INTO "{table}" SELECT * FROM "{table}"', ()),
                (f"PRAGMA user_version = {rng.randrange(9)}", ()),
            ]
        )
        with contextlib.suppress(sqlite3.Error):  # a constraint of the table forbids it
            connection.execute(statement, values)
            connection.commit()
        return connection.serialize()


def damage_archive(content: bytes, rng: random.Random) -> bytes:
    """A member of a zip file is damaged, renamed, removed or repeated and the file packed again; or its bytes are."""
    if rng.random() < 0.3:
        return damage_bytes(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        members = [(name, opened.read(name)) for name in opened.namelist()]
    at, action = rng.randrange(len(members)), rng.randrange(8)
    name, inside = members[at]
    if action == 0:
        del members[at]
    elif action == 1:
        members[at] = (rng.choice(("../up.txt", "/abs.txt", name.upper(), "x" * 300, "a\\b", members[0][0])), inside)
    elif action == 2:
        members.append((rng.choice((name, "new.json", "../up.txt")), inside))
    else:
        members[at] = (name, damage_for(name)(inside, rng) if inside else b"x")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, inside in members:
            if name not in opened.namelist():
                opened.writestr(name, inside)
    return packed.getvalue()


def damage_for(name: str) -> Damage:
    """How to damage a file of this name."""
    if name.endswith((".json", ".ipynb")):
        return damage_json
    if name.endswith((".csv", ".tsv", ".toml", ".sql", ".xml", ".yaml", ".jsonl", ".md", ".rels", ".geojson")):
        return damage_text
    if name.endswith((".sqlite", ".book")):
        return damage_database
    return damage_archive if name.endswith((".xlsx", ".zip")) else damage_bytes
