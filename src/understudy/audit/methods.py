"""The expression with which each method is audited, small enough for hundreds of fits.

A guarantee does not depend on the size of a network or the number of steps. Small networks compile quickly, few steps
have little noise each, and with a high sampling rate every fit sees the canary.
"""

from understudy.errors import ConfigError
from understudy.synthesizers import express, name_of, read_method

_NETWORKS = "arch=plain, latent=4, generator_widths=[8], critic_widths=[8]"
_GAN = f"steps=20, sampling_rate=0.25, {_NETWORKS}, warm_steps=5, generator_learning_rate=0.05, ema_decay=0.9"
_VOTES = (
    "iterations=20, teacher_batch=4, student_batch=16, memory=64, arch=plain, latent=4, generator_widths=[8], "
    "generator_learning_rate=0.05, ema_decay=0.9"
)
_INNER = f"dpgan({_GAN})"

AUDITED = {
    "independent": "independent",
    "adaptive": "adaptive",
    "mst": "mst",
    "aim": "aim",
    "privbayes": "privbayes",
    "mwem": "mwem",
    "quail": "quail(mst)",
    "gem": "gem(steps=50, components=20, width=8, depth=1, latent=4, rounds=4, learning_rate=0.01)",
    "dpgan": _INNER,
    "dpctgan": f"dpctgan({_GAN})",
    "pategan": f"pategan({_VOTES})",
    "patectgan": f"patectgan({_VOTES})",
    "bayesgan": f"bayesgan(steps=20, sampling_rate=0.25, generator_chains=2, {_NETWORKS}, generator_batch=16)",
    "autogan": f"autogan({_GAN}, autoencoder_steps=20, autoencoder_sampling_rate=0.25)",
    "boosted": f"boosted({_INNER}, rounds=50, checkpoints=4, samples_per_generator=500, distinguishers=one_way)",
    "drs": f"drs({_INNER}, proposals=2000)",
    "selected": f"selected({_INNER}, checkpoints=4, holdout_fraction=0)",
}
"""Every method of the registry, by name. `auto` is another name for one of them."""


def audited_expression(method: str) -> str:
    """The expression to audit: for the name of a method, the one in `AUDITED`; otherwise the expression itself.

    >>> audited_expression("auto"), audited_expression("mst(iterations=100)")
    ('adaptive', 'mst(iterations=100)')
    """
    if not isinstance(method, str):
        raise ConfigError(f"method must be an expression, such as 'mst'; found {type(method).__name__}.")
    named = AUDITED.get(method.strip())
    read = read_method(method if named is None else named)
    return express(read_method(AUDITED[name_of(read)]) if method.strip() == "auto" else read)
