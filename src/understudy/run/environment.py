"""The software and hardware that the last digits of a result depend on: a resumed run must share them, and a release
records the software."""

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path

from understudy._version import __version__

LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "pyarrow", "dp-accounting")
ARITHMETIC = ("jax_enable_x64", "jax_threefry_partitionable", "jax_default_matmul_precision", "jax_default_prng_impl")
"""Options of JAX that change its arithmetic."""


def environment_facts() -> dict[str, str]:
    """Device, processor, options and versions by name. Under others the same noise would be added to other answers."""
    import jax  # late: tasks of a cluster, and the command line, load this module without it

    device = jax.devices()[0]
    return {
        "device": f"{device.platform} {device.device_kind}",
        "processor": _processor(),
        "number of processor cores": str(num_cores()),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        **{name: str(getattr(jax.config, name, None)) for name in ARITHMETIC},
        "version of understudy": __version__,
        **{f"version of {name}": importlib.metadata.version(name) for name in LIBRARIES},
    }


def software_facts() -> dict[str, str]:
    """Versions of the software that computes a release, and the kind of machine: no path and no name of a user."""
    return {
        "understudy": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def _processor() -> str:
    """The model of the processor and a digest of its instruction sets, which compilers choose between."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)  # reversed: the first core's stay
    named = {name.strip(): value.strip() for name, value in facts.items()}
    sets = hashlib.sha256(named.get("flags", named.get("Features", "")).encode()).hexdigest()[:16]
    return f"{named.get('model name', platform.machine())} {sets}"


def num_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
