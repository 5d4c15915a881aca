"""Shapes and types are checked while tests run; users never pay for it."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number is a float too
