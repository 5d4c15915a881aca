"""The version, and the name under which pip installs this package."""

__version__ = "0.1.0"

DISTRIBUTION = "understudy-dp"
"""What pip installs. The import name and the command are `understudy`; a package of that name in an index is another
project's."""


def install_advice(extra: str) -> str:
    """How to install an extra, for messages about a missing one.

    >>> install_advice("geo")
    "pip install 'understudy-dp[geo]' (not 'understudy', which is another project's)"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]' (not 'understudy', which is another project's)"
