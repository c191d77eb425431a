"""Makes the data folder of the experiments from the files that their publishers hand out:

    python -m replication.collect OUT --uci FOLDER --mnist FOLDER --cifar10 FOLDER

--uci is the unpacked collection of Fernandez-Delgado et al. (2014), a folder for each set with
NAME_R.dat, or NAME_train_R.dat where there is a second file for the test; --mnist holds the four
idx files, --cifar10 the six .bin files of the binary version; each may be compressed by gzip.
Every set is checked by the SHA-256 sum of its arrays before it is written, and one that differs is
refused by name.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np

from replication.data import catalogue, file_of, sum_of, wanted_sum

Arrays = dict[str, np.ndarray]
Folder = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(help="Make the data folder of the experiments from the publishers' files.")
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--uci", type=Folder, help="The unpacked UCI collection, a folder for each set.")
@click.option("--mnist", type=Folder, help="The four idx files.")
@click.option("--cifar10", type=Folder, help="The six .bin files.")
def main(out: Path, uci: Path | None, mnist: Path | None, cifar10: Path | None) -> None:
    refused = 0
    for name, read in _sources(uci, mnist, cifar10):
        try:
            arrays = read()
            if sum_of(arrays.values()) != wanted_sum(name):
                raise ValueError("its SHA-256 sum is not that of the experiments' data")
        except (OSError, ValueError) as error:
            refused += 1
            click.echo(f"{name}: {error}", err=True)
            continue
        file = out / file_of(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, **arrays)
        click.echo(f"{name}: {file}")
    if refused:
        raise click.ClickException(f"{refused} sets could not be made")


def _sources(
    uci: Path | None, mnist: Path | None, cifar10: Path | None
) -> Iterator[tuple[str, Callable[[], Arrays]]]:
    if uci is not None:
        for name in catalogue():
            if name != "mnist":
                yield name, lambda folder=uci / name, name=name: uci_set(folder, name)
    if mnist is not None:
        yield "mnist", lambda: mnist_set(mnist)
    if cifar10 is not None:
        yield "cifar10", lambda: cifar10_set(cifar10)


def uci_set(folder: Path, name: str) -> Arrays:
    """A table with a line of names, then lines of a number, the columns and the class."""
    files = [folder / f"{name}_R.dat", folder / f"{name}_train_R.dat"]
    file = next((file for file in files if file.exists()), files[0])
    table = np.loadtxt(file, skiprows=1, ndmin=2)
    return {"X": np.ascontiguousarray(table[:, 1:-1]), "y": table[:, -1].astype(np.int64)}


def mnist_set(folder: Path) -> Arrays:
    """Pictures have a head of 16 bytes, labels one of 8."""

    def pictures(part: str) -> np.ndarray:
        return np.frombuffer(_bytes(folder, f"{part}-images-idx3-ubyte")[16:], np.uint8)

    def labels(part: str) -> np.ndarray:
        return np.frombuffer(_bytes(folder, f"{part}-labels-idx1-ubyte")[8:], np.uint8)

    return {
        "X": pictures("train").reshape(-1, 784),
        "y": labels("train"),
        "X_test": pictures("t10k").reshape(-1, 784),
        "y_test": labels("t10k"),
    }


def cifar10_set(folder: Path) -> Arrays:
    """A picture is its label and then 3072 bytes: red, green, blue."""

    def rows(*names: str) -> np.ndarray:
        return np.frombuffer(b"".join(_bytes(folder, f"{n}.bin") for n in names), np.uint8)

    train = rows(*(f"data_batch_{i}" for i in range(1, 6))).reshape(-1, 3073)
    test = rows("test_batch").reshape(-1, 3073)
    return {
        "X": np.ascontiguousarray(train[:, 1:]),
        "y": np.ascontiguousarray(train[:, 0]),
        "X_test": np.ascontiguousarray(test[:, 1:]),
        "y_test": np.ascontiguousarray(test[:, 0]),
    }


def _bytes(folder: Path, name: str) -> bytes:
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()


if __name__ == "__main__":
    main()
