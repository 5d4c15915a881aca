"""The images of MNIST: downloads the four files that its authors publish, and writes `mnist.npz` into the folder of
public tables, which `UNDERSTUDY_DATA` names.

    python benchmarks/papers/pgb/mnist_images.py
"""

import argparse
import gzip
import hashlib
import sys
import urllib.request
import zlib
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

from benchmarks.papers.command import run_script  # noqa: E402
from understudy.benchmark.sources import data_folder  # noqa: E402
from understudy.errors import TableError  # noqa: E402
from understudy.run.atomic import atomic_path  # noqa: E402

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist"
FILES = {
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}
CONTENT = "43ee20d6be6d58b01e5870c940b93f16ff49bb02d88f64c29e7d994bee1dc69a"
"""The checksum of all images and digits."""
UNSIGNED_BYTES = 8
"""The type code in an IDX file."""

Arrays = dict[str, np.ndarray]


def images_file() -> Path:
    return data_folder() / "mnist.npz"


def load_images() -> Arrays:
    """The images of 28 x 28 pixels from 0 to 255, and the digit that each shows, by the names of `FILES`."""
    path = images_file()
    if not path.is_file():
        raise TableError(f"{path} does not exist. Get it with: python benchmarks/papers/pgb/mnist_images.py")
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in FILES}
    _check(arrays, str(path))
    return arrays


def fetch_images(address: str = ADDRESS) -> Path:
    """Downloads the images unless they are there, checks them and writes them."""
    path = images_file()
    if path.is_file():
        return path
    arrays = {}
    for name, file in FILES.items():
        try:
            with urllib.request.urlopen(f"{address}/{file}", timeout=60) as answer:
                arrays[name] = read_idx(gzip.decompress(answer.read()), file)
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{address}/{file} cannot be fetched ({type(error).__name__}). Fetch it again.") from None
    _check(arrays, address)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path, force=True) as part, part.open("wb") as opened:
        np.savez_compressed(opened, **arrays)  # type: ignore[arg-type]  # of numpy's keyword `allow_pickle`
    return path


def read_idx(content: bytes, name: str) -> np.ndarray:
    """An IDX file: two zero bytes, the type, the number of dimensions, their sizes, and the bytes themselves."""
    dimensions = content[3] if len(content) > 3 else 0
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start], ">u4").astype(int)) if len(content) >= start else ()
    if content[:3] != bytes([0, 0, UNSIGNED_BYTES]) or len(content) != start + int(np.prod(shape)):
        raise TableError(f"{name} is not an IDX file of bytes. The publisher may have changed it.")
    return np.frombuffer(content[start:], np.uint8).reshape(shape)


def _check(arrays: Arrays, source: str) -> None:
    digest = hashlib.sha256()
    for name in FILES:
        digest.update(f"{name} {arrays[name].shape} {arrays[name].dtype}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    if digest.hexdigest() != CONTENT:
        raise TableError(f"The images of {source} are not those of MNIST. Move them away and fetch them again.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default=ADDRESS, help="the address of a folder with the four files")
    print(f"Wrote {fetch_images(parser.parse_args().mirror)}.")


if __name__ == "__main__":
    run_script(main)
