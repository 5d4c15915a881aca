"""Croissant 1.1: the description of a data set for machine learning, as JSON-LD, by its public specification."""

from collections.abc import Mapping
from urllib.parse import quote

from understudy.errors import ConfigError
from understudy.institution.metadata.facts import LIMITS, DescribedRelease
from understudy.institution.metadata.table_schema import JsonObject, read_resource
from understudy.schema.column import Column

CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]

CONTEXT: JsonObject = read_resource("croissant.json")
"""The words of Croissant and what they stand for, as its specification lists them."""

_DATA_TYPES = {
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
    "date": "sc:Date",
    "datetime": "sc:DateTime",
    "string": "sc:Text",
}

_MEDIA_TYPES = {".parquet": "application/x-parquet"}
"""Where the loader of Croissant knows another name than the registry of media types."""

_RECORDS = "rows"


def croissant(described: DescribedRelease) -> JsonObject:
    """The Croissant description of a release and its synthetic tables."""
    about = described.about
    about.require("Croissant", "title", "license", "url", "publisher.name")
    if not described.files:
        raise ConfigError("Croissant describes files. Name a synthetic table with --file, or files= in Python.")
    publisher = {"@type": "sc:Organization", "name": about.publisher.name}
    if about.publisher.url:
        publisher["url"] = about.publisher.url
    return {
        "@context": {**CONTEXT, "@language": about.language},
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": about.title,
        "description": described.description,
        "license": about.license,
        "url": about.url,
        "creator": publisher,
        "publisher": publisher,
        "datePublished": described.date,
        "version": about.version,
        "keywords": list(about.keywords),
        "citeAs": f"{about.publisher.name} ({(described.date or '')[:4]}): {about.title}. {about.url}",
        "isLiveDataset": False,
        "rai:dataCollection": described.origin,
        "rai:dataCollectionType": ["Others: synthetic data"],
        "rai:personalSensitiveInformation": described.guarantee,
        "rai:dataLimitations": LIMITS,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": quote(file.name),
                "name": file.name,
                "contentUrl": file.name,
                "contentSize": f"{file.num_bytes} B",
                "encodingFormat": _MEDIA_TYPES.get(file.suffix, file.media_type),
                "sha256": file.sha256,
            }
            for file in described.files
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": _RECORDS,
                "name": _RECORDS,
                "description": "Synthetic rows.",
                "field": [_field(field, described) for field in described.fields],
            }
        ],
    }


def _field(field: Mapping[str, object], described: DescribedRelease) -> JsonObject:
    name = str(field["name"])
    described_as = describe_column(described.schema[name]) if name in described.schema else ""
    return {
        "@type": "cr:Field",
        "@id": f"{_RECORDS}/{quote(name, safe='')}",
        "name": name,
        "description": described_as,
        "dataType": _DATA_TYPES.get(str(field["type"]), "sc:Text"),
        "source": {"fileObject": {"@id": quote(described.files[0].name)}, "extract": {"column": name}},
    }


def describe_column(column: Column) -> str:
    """What the schema declares about a column, in a few words."""
    if column.categories is not None:
        return f"one of {', '.join(map(str, column.categories[:20]))}{', ...' * (len(column.categories) > 20)}"
    if column.bounds is not None:
        return f"{column.kind} from {column.bounds[0]} to {column.bounds[1]}"
    return "surrogate identifier" if column.kind == "id" else column.kind
