"""DCAT-AP 3 and HealthDCAT-AP: the record of a data set in European catalogues, as JSON-LD."""

from understudy.errors import ConfigError
from understudy.institution.metadata.about import About, Agent
from understudy.institution.metadata.facts import DescribedFile, DescribedRelease
from understudy.institution.metadata.table_schema import JsonObject, read_resource

_AUTHORITY = "http://publications.europa.eu/resource/authority/"

_WORDS = read_resource("dcat.json")
CONTEXT: JsonObject = _WORDS["context"]
_THEMES: dict[str, str] = _WORDS["themes"]
"""The themes of the authority table, by their codes."""

_FILE_TYPES = {".csv": "CSV", ".tsv": "TSV", ".parquet": "PARQUET", ".jsonl": "JSONL", ".xlsx": "XLSX"}


def dcat(described: DescribedRelease) -> JsonObject:
    """The DCAT-AP record of a release and its synthetic tables."""
    about = described.about
    about.require("DCAT-AP", "title", "description", "url", "license", "publisher.name")
    if about.contact.email is None and about.contact.url is None:
        about.require("DCAT-AP", "contact.email")
    return {"@context": CONTEXT, **_dataset(described)}


def healthdcat(described: DescribedRelease) -> JsonObject:
    """The HealthDCAT-AP record. Data that are not public have more mandatory properties than public data."""
    about, health = described.about, described.about.health
    about.require(
        "HealthDCAT-AP",
        *("title", "description", "url", "license", "identifier", "keywords", "contact.email", "contact.url"),
        *("publisher.name", "publisher.email", "publisher.url", "publisher.note", "publisher.type"),
        *("publisher.trusted_data_holder", "health.category", "health.theme"),
    )
    if about.access_rights != "PUBLIC":
        about.require(
            f"HealthDCAT-AP for data that are {about.access_rights}",
            *("spatial", "health.purpose", "health.access_body.name", "health.access_body.email"),
            "health.access_body.url",
        )
    record = _dataset(described)
    law = {"@id": health.legislation, "@type": "http://data.europa.eu/eli/ontology#LegalResource"}
    record["dcatap:applicableLegislation"] = law
    record["dcat:theme"] = _concept("data-theme", "HEAL", _THEMES["HEAL"])
    record["dct:publisher"] = {
        **_agent(about.publisher),
        "healthdcatap:publisherNote": _text(about.publisher.note, about),
        "healthdcatap:publisherType": {"@id": about.publisher.type},
        "healthdcatap:trustedDataHolder": _typed(str(about.publisher.trusted_data_holder).lower(), "boolean"),
    }
    record["healthdcatap:healthCategory"] = {"@id": health.category}
    record["healthdcatap:healthTheme"] = {"@id": health.theme}
    if health.purpose:
        record["dpv:hasPurpose"] = {"@type": "dpv:Purpose", "dct:description": _text(health.purpose, about)}
    if health.access_body.name:
        record["healthdcatap:hdab"] = _agent(health.access_body)
    distributions = record["dcat:distribution"]
    assert isinstance(distributions, list)
    rights = {"@type": "dct:RightsStatement", "rdfs:label": _text(described.guarantee, about)}
    for distribution in distributions:
        distribution |= {"dcatap:applicableLegislation": law, "dct:rights": rights}
    if described.files:  # synthetic rows are what this property asks for
        record["adms:sample"] = {"@id": distributions[0]["@id"]}
    return {"@context": CONTEXT, **record}


def _dataset(described: DescribedRelease) -> JsonObject:
    about = described.about
    if about.theme is not None and about.theme not in _THEMES:
        raise ConfigError(f"theme must be one of {', '.join(_THEMES)}; found {about.theme!r}.")
    identifier = about.identifier or about.url
    record: JsonObject = {
        "@id": identifier,
        "@type": "dcat:Dataset",
        "dct:title": _text(about.title, about),
        "dct:description": _text(described.description, about),
        "dct:identifier": _typed(identifier, "anyURI"),
        "dct:type": _concept("dataset-type", "SYNTHETIC_DATA", "Synthetic data"),
        "dct:publisher": _agent(about.publisher),
        "dcat:contactPoint": _contact(about.contact),
        "dct:accessRights": {"@id": f"{_AUTHORITY}access-right/{about.access_rights}", "@type": "dct:RightsStatement"},
        "dct:provenance": {"@type": "dct:ProvenanceStatement", "rdfs:label": _text(described.origin, about)},
        "dcat:landingPage": {"@id": about.url, "@type": "foaf:Document"},
        "dcat:keyword": [_text(word, about) for word in about.keywords],
        "dcat:version": about.version,
        "dcat:distribution": _distributions(described),
    }
    if described.date:
        record["dct:issued"] = _typed(described.date, "date")
    if about.theme:
        record["dcat:theme"] = _concept("data-theme", about.theme, _THEMES[about.theme])
    if about.spatial:
        record["dct:spatial"] = {"@id": about.spatial, "@type": "dct:Location"}
    return record


def _distributions(described: DescribedRelease) -> list[JsonObject]:
    """One for each file; without files, the page where the data can be had."""
    about = described.about
    common: JsonObject = {
        "@type": "dcat:Distribution",
        "dcat:accessURL": {"@id": about.url, "@type": "rdfs:Resource"},
        "dct:license": {"@id": about.license, "@type": "dct:LicenseDocument"},
    }
    if not described.files:
        return [{"@id": f"{about.url}#distribution", **common}]
    return [_of_file(file, common, about) for file in described.files]


def _of_file(file: DescribedFile, common: JsonObject, about: About) -> JsonObject:
    media_type = f"http://www.iana.org/assignments/media-types/{file.media_type}"
    file_type = f"{_AUTHORITY}file-type/{_FILE_TYPES.get(file.suffix, 'OCTET')}"
    return {
        "@id": f"{about.url}#sha256-{file.sha256}",
        **common,
        "dct:title": _text(file.name, about),
        "dct:format": {"@id": file_type, "@type": "dct:MediaTypeOrExtent"},
        "dcat:mediaType": {"@id": media_type, "@type": "dct:MediaType"},
        "dcat:byteSize": _typed(str(file.num_bytes), "nonNegativeInteger"),
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {
                "@id": "http://spdx.org/rdf/terms#checksumAlgorithm_sha256",
                "@type": "spdx:ChecksumAlgorithm",
            },
            "spdx:checksumValue": _typed(file.sha256, "hexBinary"),
        },
    }


def _agent(agent: Agent) -> JsonObject:
    entry: JsonObject = {"@type": "foaf:Agent", "foaf:name": agent.name}
    if agent.email:
        entry["foaf:mbox"] = {"@id": f"mailto:{agent.email}"}
    if agent.url:
        entry["foaf:homepage"] = {"@id": agent.url, "@type": "foaf:Document"}
    return entry


def _contact(agent: Agent) -> JsonObject:
    entry: JsonObject = {"@type": "vcard:Kind"}
    if agent.name:
        entry["vcard:fn"] = agent.name
    if agent.email:
        entry["vcard:hasEmail"] = {"@id": f"mailto:{agent.email}"}
    if agent.url:
        entry["vcard:hasURL"] = {"@id": agent.url}
    return entry


def _concept(table: str, code: str, label: str) -> JsonObject:
    """An entry of an authority table of the EU."""
    return {
        "@id": f"{_AUTHORITY}{table}/{code}",
        "@type": "skos:Concept",
        "skos:prefLabel": {"@value": label, "@language": "en"},
        "skos:inScheme": {"@id": f"{_AUTHORITY}{table}"},
    }


def _text(text: str | None, about: About) -> JsonObject:
    return {"@value": text, "@language": about.language}


def _typed(value: str | None, datatype: str) -> JsonObject:
    return {"@value": value, "@type": f"xsd:{datatype}"}
