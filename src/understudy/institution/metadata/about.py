"""What a person says about a data set for a catalogue: title, publisher, licence and so on, in a small TOML file."""

import dataclasses
import os
import re
from collections.abc import Mapping
from datetime import date
from typing import TypeVar, get_args

from understudy.errors import ConfigError, SchemaError
from understudy.rules.keys import check_keys
from understudy.rules.values import format_value
from understudy.schema import Schema
from understudy.schema.toml import read_settings

ACCESS_RIGHTS = ("PUBLIC", "RESTRICTED", "NON_PUBLIC")
Section = TypeVar("Section")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """An organisation or a person: the publisher, whom to ask, or a health data access body."""

    name: str | None = None
    email: str | None = None
    url: str | None = None
    note: str | None = None
    """For HealthDCAT-AP: what the publisher does, in a sentence."""
    type: str | None = None
    """For HealthDCAT-AP: the address of a publisher type."""
    trusted_data_holder: bool | None = None
    """For HealthDCAT-AP: whether the publisher is a trusted data holder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """What only HealthDCAT-AP asks for."""

    category: str | None = None
    """The address of a health category."""
    theme: str | None = None
    """The address of a health theme."""
    purpose: str | None = None
    """What the data may be used for, in a sentence."""
    legislation: str = "http://data.europa.eu/eli/reg/2025/327/oj"
    """The address of the law under which it is published: the regulation on the European Health Data Space."""
    access_body: Agent = dataclasses.field(default_factory=Agent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What a catalogue wants to know about a data set and the certificate does not say.

    >>> About(title="People of Exampleton", license="https://creativecommons.org/licenses/by/4.0/").access_rights
    'PUBLIC'
    """

    title: str | None = None
    """The title of the data set. None: its name in the schema."""
    description: str | None = None
    """A paragraph about it."""
    license: str | None = None
    """The address of the licence of the synthetic data."""
    url: str | None = None
    """The page where the data can be had."""
    identifier: str | None = None
    """The address that identifies the data set, such as a DOI. None: `url`."""
    issued: date | None = None
    """When it was published. None: the day of the run."""
    version: str = "1.0.0"
    """The version of the synthetic data."""
    language: str = "en"
    """The language of the text in it, as a code."""
    keywords: tuple[str, ...] = ("synthetic data", "differential privacy")
    """Keywords by which it can be found."""
    theme: str | None = None
    """A theme of the EU's authority table, such as HEAL or SOCI."""
    access_rights: str = "PUBLIC"
    """One of `ACCESS_RIGHTS`."""
    spatial: str | None = None
    """The address of the country or place that the data are about."""
    region: str | None = None
    """For the deployments registry: the region that the data are about, in words."""
    sector: str | None = None
    """For the deployments registry: such as Healthcare or Government."""
    intended_use: str | None = None
    """For the deployments registry: what the synthetic data are for."""
    justification: str | None = None
    """For the deployments registry: why this epsilon and this privacy unit were chosen."""
    authors: tuple[str, ...] = ()
    """For the deployments registry: who wrote the entry. Empty: the publisher."""
    publisher: Agent = dataclasses.field(default_factory=Agent)
    """Who publishes it."""
    contact: Agent = dataclasses.field(default_factory=Agent)
    """Whom to ask about it."""
    health: Health = dataclasses.field(default_factory=Health)
    """What HealthDCAT-AP requires in addition."""

    def __post_init__(self) -> None:
        if self.access_rights not in ACCESS_RIGHTS:
            raise ConfigError(
                f"access_rights must be one of {', '.join(ACCESS_RIGHTS)}; found {format_value(self.access_rights)}."
            )
        if not re.fullmatch(r"[a-z]{2,3}", self.language):
            raise ConfigError(f'language must be a code such as "en", found {format_value(self.language)}.')
        for key, value in self._addresses().items():
            if value is not None and not re.fullmatch(r"[a-z][a-z0-9+.-]*:[^\s<>\"{}|\\^`]+", value):
                raise ConfigError(
                    f"{key} must be an address such as https://example.org/x, found {format_value(value)}."
                )
        for key, agent in {"publisher": self.publisher, "contact": self.contact}.items():
            if agent.email is not None and not re.fullmatch(r"[^\s@<>\"]+@[^\s@<>\"]+", agent.email):
                raise ConfigError(f"{key}.email must be an e-mail address, found {format_value(agent.email)}.")

    def _addresses(self) -> dict[str, str | None]:
        own = {key: getattr(self, key) for key in ("license", "url", "identifier", "spatial")}
        health = {f"health.{key}": getattr(self.health, key) for key in ("category", "theme", "legislation")}
        agents = {"publisher": self.publisher, "contact": self.contact, "health.access_body": self.health.access_body}
        urls = {f"{name}.url": agent.url for name, agent in agents.items()}
        return {**own, **health, **urls, "publisher.type": self.publisher.type}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "About":
        """Reads a TOML file with the fields as keys, and [publisher], [contact] and [health] as sections."""
        content = read_settings(path)
        try:
            return _read_section(cls, content, "")
        except (ConfigError, SchemaError) as error:
            raise ConfigError(f"{path}: {error}") from None

    def completed_from(self, schema: Schema) -> "About":
        """With title, publisher and contact from the schema, where this does not have them."""
        asked = schema.contact or ""
        contact = Agent(name=schema.responsible, email=asked) if "@" in asked and " " not in asked else Agent()
        if asked.startswith(("http://", "https://")):
            contact = Agent(name=schema.responsible, url=asked)
        return dataclasses.replace(
            self,
            title=self.title or (f"Synthetic data: {schema.name}" if schema.name else None),
            publisher=_completed(self.publisher, Agent(name=schema.responsible)),
            contact=_completed(self.contact, contact),
        )

    def require(self, form: str, *keys: str) -> None:
        """Raises unless these keys are set, such as "title" or "publisher.name", and names all that are not."""
        absent = []
        for key in keys:
            value: object = self
            for part in key.split("."):
                value = getattr(value, part)
            if value in (None, "", ()):
                absent.append(key)
        if absent:
            raise ConfigError(
                f"{form} requires {', '.join(absent)}. Set {'it' if len(absent) == 1 else 'them'} in a TOML file and"
                " name that file with --about, or about= in Python."
            )


def _completed(agent: Agent, other: Agent) -> Agent:
    """The agent with what the other one knows and it does not."""
    known = {key: value for key, value in vars(other).items() if value is not None and getattr(agent, key) is None}
    return dataclasses.replace(agent, **known)


def _read_section(cls: type[Section], content: object, where: str) -> Section:
    """An instance of a dataclass from the keys of a section."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where} must be a section, written as [{where}].")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # of a dataclass
    check_keys(content, tuple(fields), f"[{where}]" if where else "The file")
    values: dict[str, object] = {}
    for key, value in content.items():
        expected, name = fields[key].type, f"{where}.{key}".strip(".")
        if isinstance(expected, type) and dataclasses.is_dataclass(expected):
            values[key] = _read_section(expected, value, name)
        elif expected == tuple[str, ...]:
            if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
                raise ConfigError(f"{name} must be a list of strings, found {format_value(value)}.")
            values[key] = tuple(value)
        else:
            allowed = get_args(expected) or (expected,)
            if type(value) not in allowed or value == "":
                kind = {str: "a string", bool: "true or false", date: "a date such as 2026-01-31"}[allowed[0]]
                raise ConfigError(f"{name} must be {kind}, found {format_value(value)}.")
            values[key] = value
    return cls(**values)
