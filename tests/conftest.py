"""What all tests share: a compilation cache, no network, and the folder of public tables."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]

# By environment, before JAX is loaded, so that command-line tests in other processes share the cache too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests compile many small programs and run each for moments: code that is quick to make beats quick code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# Shapes and types of arrays are checked while tests run (before the modules are loaded); users never pay for it.
jaxtyping.install_import_hook(
    ["understudy.encoding", "understudy.junction", "understudy.marginals"], "typechecks.checked"
)

# The same examples in every run: a failure can be repeated, and the suite's verdict is no lottery.
settings.register_profile("understudy", deadline=None, derandomize=True)
settings.load_profile("understudy")


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Refuses every connection of this process that would leave the machine."""
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: object) -> None:
        local = self.family == socket.AF_UNIX or (isinstance(address, tuple) and address[0] in ("127.0.0.1", "::1"))
        if not local:
            raise OSError("The tests use no network.")
        connect(self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        yield


@pytest.fixture(scope="session")
def understudy_data() -> Path:
    """The folder of public tables that `UNDERSTUDY_DATA` names."""
    named = os.environ.get("UNDERSTUDY_DATA")
    if not named:
        pytest.skip("UNDERSTUDY_DATA is not set: this test needs the folder of public tables.")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"UNDERSTUDY_DATA names {folder.name}, which is no folder: this test needs public tables.")
    return folder
