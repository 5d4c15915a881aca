"""Rows that are held out before a fit: the options, their file, and the secret that lets a run resume."""

import dataclasses
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.terminal import echo
from understudy.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from understudy.cli.fit import FitCommand
    from understudy.run.sources import TableToFit
    from understudy.schema import Schema
    from understudy.tables import Origin


def holdout_file(folder: Path) -> Path:
    """Where the rows are that were held out of a release, unless another file was named: fake.holdout.csv."""
    return folder.with_name(f"{folder.name.removesuffix('.release')}.holdout.csv")


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The file of the held-out rows, and beside it, during the run, the secret that chose them."""

    fraction: float
    path: str
    force: bool
    resume: bool
    written: list[Path] = dataclasses.field(default_factory=list)
    """The files that this run has made."""

    @classmethod
    def read(cls, options: "FitCommand", folder: Path, out: str | None) -> "HeldOut | None":
        """From the options of a command that writes to this release folder; refused before anything is read."""
        from understudy.evaluation.scorecard import refuse_release
        from understudy.steward.split import check_fraction
        from understudy.tables import check_writable

        path, overwrites = options.holdout or str(holdout_file(folder)), options.force or options.resume
        if options.split is None:
            if options.holdout is not None:
                raise ConfigError("--holdout names the file for the rows that --split holds out. Give --split 0.2 too.")
            if Path(path).exists():  # 'evaluate' would take its rows for rows that were not fitted
                raise ConfigError(
                    f"{path} holds rows that an earlier run held out; this run would fit them. Move or delete it, or "
                    "give --split."
                )
            return None
        check_fraction(options.split, "--split")
        if "::" in path:
            raise ConfigError(f"--holdout {path}: expected a file, not a table of a database.")
        refuse_release(path)
        # Real rows must not stand where the synthetic ones are expected.
        taken = (options.source, options.schema, options.public, options.json_file, out)
        others = {os.path.realpath(str(place).partition("::")[0]) for place in taken if place is not None}
        if others & {os.path.realpath(path), os.path.realpath(f"{path}.secret")}:
            raise ConfigError(f"--holdout {path}: that file is read or written as well. Choose another name.")
        check_writable(path, force=overwrites, table=True)
        made = cls(options.split, path, overwrites, options.resume)
        if options.resume and not made._secret_file.exists():
            raise CheckpointError(f"{made._secret_file} is missing, so the same rows cannot be held out again.")
        if options.resume:
            made.written.extend((made._secret_file, Path(path)))
        return made

    @property
    def _secret_file(self) -> Path:
        return Path(f"{self.path}.secret")

    def take(self, data: "TableToFit") -> "TableToFit":
        """The table without the held-out rows, which are written to their file."""
        from understudy.steward.split import split_private

        rest, held_out = split_private(data, self.fraction, self._secret())
        write_private(held_out, self.path, origin=data.origin, schema=data.schema, force=self.force)
        self.written.append(Path(self.path))
        return rest

    def _secret(self) -> int:
        if self.resume:
            return int(self._secret_file.read_text(encoding="ascii"))
        secret = secrets.randbits(128)
        self._secret_file.unlink(missing_ok=True)
        with os.fdopen(os.open(self._secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(str(secret))
        self.written.append(self._secret_file)
        return secret

    def finish(self, quiet: bool) -> None:
        """After the release is saved: the secret is deleted, and the file is named."""
        self._secret_file.unlink(missing_ok=True)
        echo(
            f"Held out about {self.fraction:.0%} for 'understudy evaluate --holdout {self.path}'. These rows are real "
            "and were not fitted: never share them.",
            quiet=quiet,
        )

    def remove(self) -> None:
        """After a run that released nothing: what it has written is not left behind."""
        for path in self.written:
            path.unlink(missing_ok=True)


def write_private(
    table: "pa.Table", path: str, *, origin: "Origin", schema: "Schema | None" = None, force: bool
) -> None:
    """Writes real rows to a file that only its owner may read."""
    from understudy.steward.split import with_real_ids
    from understudy.tables import write_table

    mask = os.umask(0o077)
    try:
        write_table(table, path, origin=with_real_ids(origin, table, schema), force=force)
    finally:
        os.umask(mask)
