"""Croissant 1.1: the description of a data set for machine learning, as JSON-LD, by its public specification."""

from collections.abc import Mapping
from urllib.parse import quote

from understudy.errors import ConfigError
from understudy.metadata.described import DescribedRelease
from understudy.metadata.table_schema import JsonObject
from understudy.schema.column import Column

CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]

_OF_CROISSANT = """annotation arrayShape citeAs column containedIn equivalentProperty excludes extract field
    fileProperty fileObject fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet
    references regex repeated replace readLines samplingRate sdVersion separator source subField transform unArchive
    value"""

CONTEXT: JsonObject = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _OF_CROISSANT.split()},
}

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
        "rai:dataLimitations": described.limits,
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
    """What the schema declares about a column, in a few words.

    >>> describe_column(Column(name="age", kind="integer", bounds=(0, 120)))
    'integer from 0 to 120'
    """
    if column.categories is not None:
        return f"one of {', '.join(map(str, column.categories[:20]))}{', ...' * (len(column.categories) > 20)}"
    if column.bounds is not None:
        return f"{column.kind} from {column.bounds[0]} to {column.bounds[1]}"
    return "surrogate identifier" if column.kind == "id" else column.kind
