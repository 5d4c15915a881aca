"""Settings: what annotations allow, their names, and values as TOML writes them."""

import dataclasses
import math
from typing import Annotated, Any

import pytest

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.synthesizers.settings import (
    Advice,
    Count,
    Fraction,
    InnerFraction,
    Listed,
    NotNegative,
    OneOf,
    Positive,
    Range,
    SettingError,
    Widths,
    build,
    changed_settings,
    check_settings,
    read_value,
    replace_settings,
    settings_of,
    write_value,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """Settings that methods share."""

    critic_widths: Widths = (64, 64)
    critic_learning_rate: Positive = 1e-3
    clip: Annotated[float, Range(0.1, 10)] = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gan(CriticSettings):
    critic_widths: Widths = (32,)
    steps: Count = 100
    betas: tuple[Fraction, Fraction] = (0.5, 0.9)
    loss: Annotated[str, OneOf("gan", "wgan"), Advice("Others diverge.")] = "gan"
    share: InnerFraction | None = None
    weight: NotNegative = 1.0
    sampling: Annotated[float, Range(0, 1, open_low=True)] = 0.5
    queries: Annotated[str, OneOf("pairs")] | tuple[Annotated[tuple[str, ...], Listed(2, distinct=True)], ...] = "pairs"
    verbose: bool = False

    def __post_init__(self) -> None:
        check_settings(self)


NAMES = "critic_widths critic_learning_rate clip steps betas loss share weight sampling queries verbose"


def test_settings_are_built_changed_and_compared_by_name() -> None:
    assert " ".join(settings_of(Gan)) == NAMES
    changed = {"critic_widths": (8, 8), "clip": 2.0, "steps": 3, "betas": (0.0, 0.5)}
    made = build(Gan, [], changed)
    assert made == Gan(steps=3, critic_widths=(8, 8), clip=2.0, betas=(0.0, 0.5))
    assert {name: value for name, _, value in changed_settings(made)} == changed
    assert replace_settings(made, {"critic_learning_rate": 0.5}).critic_widths == (8, 8)


def test_a_default_of_a_method_replaces_that_of_its_base() -> None:
    assert build(Gan, [], {"clip": 2.0}).critic_widths == (32,)
    assert settings_of(Gan)["critic_widths"].default == (32,)


def test_unknown_names_have_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"Gan has no setting 'critic_width'. Did you mean 'critic_widths'"):
        build(Gan, [], {"critic_width": 5})
    with raises(ConfigError, setting="critic"):
        replace_settings(Gan(), {"critic": 5})


@pytest.mark.parametrize(
    ("setting", "found", "expected"),
    [
        ("steps", 0, "a whole number of at least 1"),
        ("steps", 1.0, "a whole number of at least 1"),
        ("steps", True, "a whole number of at least 1"),
        ("steps", "many", "a whole number of at least 1"),
        ("steps", None, "a whole number of at least 1"),
        ("critic_widths", (8, 0), "a list, each a whole number of at least 1"),
        ("critic_widths", 8, "a list, each a whole number of at least 1"),
        ("critic_learning_rate", 0.0, "a positive number"),
        ("critic_learning_rate", math.inf, "a positive number"),
        ("critic_learning_rate", math.nan, "a positive number"),
        ("clip", 0.01, "a number from 0.1 to 10"),
        ("betas", (0.5, 1.0), "a list of 2, each a number from 0 to below 1"),
        ("betas", (0.5,), "a list of 2, each a number from 0 to below 1"),
        ("loss", "wgna", "one of gan, wgan"),
        ("loss", 5, "one of gan, wgan"),
        ("share", 1.0, "a number above 0 and below 1"),
        ("share", 0, "a number above 0 and below 1"),
        ("weight", -1, "a number of at least 0"),
        ("weight", math.inf, "a number of at least 0"),
        ("sampling", 0.0, "a number above 0 and at most 1"),
        ("queries", (("a",),), None),
        ("queries", (("a", "a"),), None),
        ("queries", "triples", None),
        ("verbose", 1, "true or false"),
    ],
)
def test_what_is_not_allowed_is_refused_with_its_name(setting: str, found: Any, expected: str | None) -> None:
    with pytest.raises(SettingError) as refused:
        build(Gan, [], {setting: found})
    assert refused.value.setting == setting
    assert refused.value.found is found
    assert expected in (refused.value.expected, None)
    assert str(refused.value).startswith(f"{setting} must be {refused.value.expected}, found ")


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 1},
        {"critic_widths": ()},
        {"weight": 0, "critic_learning_rate": 3, "sampling": 1},
        {"clip": 0.1},
        {"clip": 10.0},
        {"betas": (0, 0.999)},
        {"share": None},
        {"queries": (("a", "b"), ("a", "c"))},
    ],
)
def test_what_is_allowed_is_taken(settings: dict[str, Any]) -> None:
    build(Gan, [], settings)


def test_advice_follows_the_refusal() -> None:
    with pytest.raises(SettingError, match=r"found wgna\. Others diverge\.$"):
        Gan(loss="wgna")


def test_lists_become_tuples() -> None:
    lists: Any = [["a", "b"]]
    assert Gan(queries=lists).queries == (("a", "b"),)
    widths: Any = [4, 4]
    assert Gan(critic_widths=widths) == Gan(critic_widths=(4, 4))


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), ((1, 2.5), "[1, 2.5]"), ("word", "word"), ("true", '"true"'), ("a b", '"a b"'), (1e-5, "1e-05")],
)
def test_values_read_back(value: object, text: str) -> None:
    assert write_value(value) == text
    assert read_value(text) == value
