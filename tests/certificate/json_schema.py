"""The JSON schema of certificate.json; `python -m tests.certificate.json_schema` publishes it anew."""

import dataclasses
import importlib.resources
import inspect
import json
from pathlib import Path

from understudy.privacy.accounting.events import EVENTS, Event, Range, _ranges
from understudy.run.atomic import json_bytes

FILE = importlib.resources.files("understudy.certificate") / "certificate.schema.json"


def json_schema() -> dict[str, object]:
    """The published file, with the events as their classes describe them."""
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    schema["$defs"]["event"]["oneOf"] = [event_schema(cls) for cls in EVENTS.values()]
    return schema


def event_schema(cls: type[Event]) -> dict[str, object]:
    """Of what `to_json` returns; the description is the class's docstring."""
    names = [field.name for field in dataclasses.fields(cls)]
    fields = {name: _field_schema(_ranges(cls).get(name)) for name in names}
    return {
        "description": " ".join((inspect.getdoc(cls) or "").split()),
        "type": "object",
        "required": ["kind", *fields],
        "additionalProperties": False,
        "properties": {"kind": {"const": cls.__name__}, **fields},
    }


def _field_schema(allowed: Range | None) -> dict[str, object]:
    if allowed is None:
        return {"type": "boolean"}
    return {"type": "integer" if allowed.whole else "number", "minimum": allowed.lowest, "maximum": allowed.highest}


if __name__ == "__main__":
    Path(str(FILE)).write_bytes(json_bytes(json_schema()))
