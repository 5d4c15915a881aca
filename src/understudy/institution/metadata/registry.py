"""An entry for the Differential Privacy Deployments Registry (registry.opendp.org), as YAML, by its public schema."""

import json
import re
from collections.abc import Iterator, Mapping

from understudy.certificate.json import statement_conditions, to_json
from understudy.errors import ConfigError
from understudy.institution.metadata.facts import DescribedRelease
from understudy.institution.metadata.table_schema import JsonObject

SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")


def registry(described: DescribedRelease) -> JsonObject:
    """The entry of a release, with the fields of all three tiers. A person reviews and submits it."""
    statement, about = described.release.statement, described.about
    if not statement.is_private:
        raise ConfigError(
            f"The registry is about differential privacy, and this release has no guarantee ({statement.headline}).",
            setting="guarantee",
        )
    about.require("The registry", "title", "description", "publisher.name", "intended_use", "region")
    if about.sector is not None and about.sector not in SECTORS:
        raise ConfigError(f"sector must be one of {', '.join(SECTORS)}; found {about.sector!r}.")
    slug = "-".join(
        re.findall(r"[a-z0-9]+", f"{about.title} {about.publisher.name} {(described.date or '')[:4]}".lower())
    )
    return {
        "url_slug": slug,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": about.title,
                "data_curators": [about.publisher.name],
                "intended_use": about.intended_use,
                "data_product_type": "Synthetic data",
                "data_product_region": about.region,
                "description": about.description,
                "publication_date": described.date,
                **({"data_product_sector": about.sector} if about.sector else {}),
            },
            **_privacy(described),
            "administrative": {
                "sources": about.url or "None",
                "notes": f"SHA-256 of the release: {described.release.digest}",
                "registry_authors": list(about.authors or (str(about.publisher.name),)),
            },
        },
    }


def _privacy(described: DescribedRelease) -> JsonObject:
    """What the certificate says, in the fields of the registry."""
    statement = described.release.statement
    certificate = to_json(statement)
    guarantee = certificate["guarantee"]
    assert isinstance(guarantee, Mapping)
    unit = statement.facts.unit
    declared = "; ".join(statement.facts.declared) or "none"
    conditions = [f"Condition: {each}" for each in statement_conditions(statement.facts)]
    released = [
        described.schema[name] for field in described.fields if (name := str(field["name"])) in described.schema
    ]
    kinds = ", ".join(f"{column.name} ({column.kind})" for column in released)
    protected = "one row" if unit is None else f"up to {statement.max_rows_per_unit} rows with the same {unit}"
    return {
        "dp_variant": {
            "variant_name": "Pure DP" if statement.delta == 0 else "Approximate DP",
            "data_domain": f"Tables with the columns {kinds}.",
            "unprotected_quantities": " ".join(
                (f"Names and kinds of columns, and what is declared to be public: {declared}.", *conditions)
            ),
        },
        "privacy_loss": {
            "privacy_unit": "Row-level" if unit is None else f"{unit}-level",
            "privacy_unit_details": f"Adjacent tables: {guarantee['adjacency']}. A unit is {protected}.",
            "privacy_parameters": {"epsilon": statement.epsilon, "delta": statement.delta},
            "privacy_parameters_details": f"Accountant: {statement.accountant}.",
        },
        "deployment_model": {
            "model_name": "Central",
            "release_type": "One release",
            "release_type_details": _release_details(described),
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": "Synthetic rows are sampled from the fitted model, which costs no further privacy.",
            "composition": f"Sequential, of {len(statement.queries)} queries; accountant: {statement.accountant}.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _preprocessing(described),
            "mechanisms": "\n".join(_mechanisms(described)),
            **({"justification": described.about.justification} if described.about.justification else {}),
        },
    }


def _release_details(described: DescribedRelease) -> str:
    book = described.release.statement.facts.book
    if book is None:
        return "Other releases about the same people are not accounted for here."
    number, name = book.number, book.dataset
    return f"This release is entry {number} in the budget book of {name}, which limits all of its releases together."


def _preprocessing(described: DescribedRelease) -> str:
    estimated = "; ".join(described.release.statement.facts.estimated)
    if not estimated:
        return "Nothing was estimated from the private rows before the method ran."
    return f"Estimated privately, within the stated guarantee: {estimated}."


def _mechanisms(described: DescribedRelease) -> Iterator[str]:
    """A list in Markdown: the software, and every query with its mechanism."""
    statement = described.release.statement
    yield f"- Understudy {described.version}, method {statement.method}"
    yield from (f"- {query.what}: {query.event.describe()}" for query in statement.queries)
    yield "- Not covered by the guarantee: timing, memory use, and other observations of the machine."


def to_yaml(content: Mapping[str, object], indent: str = "") -> str:
    """YAML of nested mappings and lists of strings: in double quotes, or as blocks if they have several lines."""
    lines = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{to_yaml(value, indent + '  ')}")
        elif isinstance(value, list):
            lines.append(f"{indent}{key}:\n" + "".join(f"{indent}  - {_scalar(item)}\n" for item in value))
        elif isinstance(value, str) and _is_block(value):
            lines.append(f"{indent}{key}: |-\n" + "".join(f"{indent}  {line}\n" for line in value.split("\n")))
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _is_block(text: str) -> bool:
    """Whether a string of several lines can be shown as such: no line is empty or begins or ends with a space."""
    lines = text.split("\n")
    return len(lines) > 1 and all(line and line == line.strip() and line.isprintable() for line in lines)


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _scalar(value: object) -> str:
    """A scalar. YAML 1.1 reads 1e-06 as a string, so a number gets a decimal point."""
    if isinstance(value, float):
        mantissa, mark, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"
    quoted = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
