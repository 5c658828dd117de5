"""Tables with a version, and the statements that change them from one version to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, cast

from aioprod.config.checks import in_range, one_of
from aioprod.database.address import Dialect

_DIALECTS: Final = ("postgresql", "sqlite")
#: The statements that lead to a version from the previous one, or back, by the version.
Steps = dict[int, tuple[str, ...]]


@dataclass(frozen=True)
class VersionedTables:
    """The tables of a part of aioprod. Those of version 1 have no view with the version.

    Attributes:
        part: the name of the part.
        view: has the version.
        version: the one that this code reads and writes.
        upgrade, downgrade: return the steps for a dialect.
        how_to_change: the way to change the tables, with ``{dialect}`` and ``{version}``.
    """

    part: str
    view: str
    version: int
    upgrade: Callable[[Dialect], Steps]
    downgrade: Callable[[Dialect], Steps]
    how_to_change: str

    def statements(self, dialect: Dialect, from_version: int, to_version: int | None) -> list[str]:
        """Return the statements that change the tables from one version to another.

        Raises:
            ConfigError: if the dialect or a version is unknown.
        """
        one_of(_DIALECTS)("dialect", dialect)
        check = in_range(0, self.version)
        current = check("from_version", from_version)
        new = self.version if to_version is None else check("to_version", to_version)
        found: list[str] = []
        for version in range(current + 1, new + 1):
            found += self.upgrade(dialect)[version]
        for version in range(current, new, -1):
            found += self.downgrade(dialect)[version]
        return found

    def is_versioned(self, dialect: Dialect) -> str:
        """Return an expression of SQL that is true if the tables have a version."""
        if dialect == "postgresql":
            return f"to_regclass('{self.view}') IS NOT NULL"
        return f"EXISTS (SELECT 1 FROM sqlite_master WHERE name = '{self.view}')"

    def error_of(self, version: int, dialect: Dialect) -> str | None:
        """Return what is wrong with tables of this version, if anything."""
        if version == self.version:
            return None
        cure = "install the newer aioprod that changed the tables"
        if version < self.version:
            how = self.how_to_change.format(dialect=dialect, version=version)
            cure = f"change them with the statements of: {how}"
        return (
            f"the tables of the {self.part} have version {version}, but this aioprod uses version "
            f"{self.version}: {cure}"
        )


def migrate(statements: Callable[[Dialect], Iterable[str]]) -> None:
    """Run the statements for the dialect of the database in a migration of Alembic."""
    from alembic import op
    from sqlalchemy import text

    dialect = cast("Dialect", op.get_context().dialect.name)  # the function checks it
    for statement in statements(dialect):
        op.execute(text(statement))
