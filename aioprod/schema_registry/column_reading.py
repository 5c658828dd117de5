"""Reads a column of records with several schemas as one type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aioprod.column_serialization import DecodedColumn
from aioprod.preparation import NotPrepared
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.schema_registry.wire_format import Place, SchemaId, find_id
from aioprod.schema_registry.work_apart import TakesLong, WorkApart
from aioprod.types import Headers

if TYPE_CHECKING:
    from aioprod.schema_registry.columns import ColumnTypes, Decode, Row, Shape

P = TypeVar("P")

MOST_KEPT: Final = 1_000


class ColumnReading(Generic[P]):
    """The part of a deserializer that reads columns.

    All rows of a topic are converted to the reader's schema. Without one, it is the newest schema
    that was found in the topic, which changes only in a :class:`NotPrepared`.

    Args:
        is_key: whether it deserializes keys.
    """

    def __init__(self, *, is_key: bool) -> None:
        self._is_key = is_key
        self._ready: BoundedCache[SchemaId, P] = BoundedCache(MOST_KEPT)
        self._met: BoundedCache[tuple[str, Place], bool] = BoundedCache(MOST_KEPT)
        self._newest: BoundedCache[str, Place] = BoundedCache(MOST_KEPT)
        self._types: BoundedCache[Place | None, ColumnTypes] = BoundedCache(MOST_KEPT)
        self._failed: BoundedCache[SchemaId, Exception] = BoundedCache(MOST_KEPT)
        self._decoders: BoundedCache[tuple[Place, Place | None], Decode] = BoundedCache(MOST_KEPT)
        self._apart = WorkApart()

    # -- what formats implement --------------------------------------------------------------------

    @property
    def has_reader(self) -> bool:
        """True if the application has given a schema or class to read with."""
        raise NotImplementedError

    async def parse_reader(self) -> None:
        """Parse the schema that the application has given."""
        raise NotImplementedError

    def column_types(self, place: Place | None, newest: P | None) -> ColumnTypes:
        """Return the types of a column.

        Args:
            place, newest: the schema to read with; None if the application has given one.

        Raises:
            ValueError: if Arrow has no type for it.
        """
        raise NotImplementedError

    def column_decoder(
        self, parsed: P, place: Place, reader: Place | None, newest: P | None
    ) -> Decode:
        """Return a function that decodes the records of a schema for :meth:`column_types`.

        Args:
            parsed, place: the schema of the records.
            reader, newest: the schema to read with; None if the application has given one.
        """
        raise NotImplementedError

    async def _prepare(self, schema_id: SchemaId) -> None:
        raise NotImplementedError

    def locate(self, headers: Headers, data: bytes) -> tuple[Place, int]:
        """Return the schema id and message of a record, and where its data begin.

        Raises:
            ValueError: if it has no schema id.
        """
        schema_id, coded, end = find_id(headers, self._is_key, data)
        return Place(schema_id), end if coded is data else 0

    def known(self, place: Place) -> P | None:
        """Return a schema if it need not be fetched."""
        return self._ready.get(place.schema_id)

    # -- calls -------------------------------------------------------------------------------------

    async def own_types(self) -> ColumnTypes:
        """Return the column types of the schema that the application has given.

        Raises:
            ValueError: if Arrow has no type for it.
        """
        await self.parse_reader()
        return self.column_types(None, None)

    def deserialize_column(
        self, topic: str, headers: Any, column: Any, *, shape: Shape | None = None
    ) -> DecodedColumn:
        """Deserialize a column of Arrow, as ``ColumnDeserializer`` says.

        Args:
            topic, headers, column: see there.
            shape: returns the type of the result for the schema's type; not called for a column
                of nulls whose schema is not known.

        Raises:
            NotPrepared: if a schema has to be fetched.
            ValueError: if Arrow has no type for the schema.
        """
        from aioprod.schema_registry.columns import UNKNOWN, rows_of

        rows, errors = rows_of(column, headers, self.locate)
        places = dict.fromkeys(row.place for row in rows if row is not None)
        reader = None if self.has_reader else self._newest.get(topic)
        needed = [*places, reader] if reader is not None else list(places)
        parsed = {place: self.known(place) for place in needed}
        failed = {place: self._failed.get(place.schema_id) for place in needed}
        # The next call fetches them again.
        self._failed.drop(lambda schema_id: any(each.schema_id == schema_id for each in failed))
        new = [
            place
            for place, found in parsed.items()
            if failed[place] is None
            and (found is None or not (self.has_reader or self._met.get((topic, place))))
        ]
        if new:
            raise NotPrepared(partial(self._meet, topic, new))
        types = self._types.get(reader)
        if types is None:
            if not any(found is not None for found in parsed.values()):
                types = UNKNOWN
            else:
                types = self.column_types(reader, parsed.get(reader) if reader else None)
                self._types.put(reader, types)
        decoders = {}
        for place in places:
            try:
                if (error := failed[place]) is not None:
                    raise error
                decoders[place] = self._decoder(place, parsed, reader)
            except Exception as error:
                decoders[place] = partial(_raise, error)
        return self._decoded(rows, errors, decoders, types, shape)

    def _decoded(
        self,
        rows: list[Row | None],
        errors: dict[int, Exception],
        decoders: Mapping[Place, Decode],
        types: ColumnTypes,
        shape: Shape | None,
    ) -> DecodedColumn:
        from aioprod.schema_registry.columns import column_of

        def decode() -> DecodedColumn:
            found = dict(errors)
            return DecodedColumn(column_of(rows, found, decoders, types, shape), found)

        key = (tuple(rows), types.arrow, shape) if self._apart else None
        if key is not None and (outcome := self._apart.take(key)) is not None:
            if outcome.error is not None:
                raise outcome.error
            column: DecodedColumn = outcome.value
            return column
        try:
            return decode()
        except TakesLong:
            raise self._apart.start((tuple(rows), types.arrow, shape), decode) from None

    def _decoder(
        self, place: Place, parsed: Mapping[Place, P | None], reader: Place | None
    ) -> Decode:
        decode = self._decoders.get((place, reader))
        if decode is None:
            found = parsed[place]
            assert found is not None
            decode = self.column_decoder(
                found, place, reader, parsed.get(reader) if reader else None
            )
            self._decoders.put((place, reader), decode)
        return decode

    async def _meet(self, topic: str, places: Iterable[Place]) -> None:
        """Fetch schemas. If one can't be fetched, the records that have it are errors."""
        from aioprod.schema_registry.columns import newest_of

        newest = self._newest.get(topic)
        known = [] if newest is None else [newest]
        for place in places:
            if self.known(place) is None:
                try:
                    await self._prepare(place.schema_id)
                except Exception as error:
                    self._failed.put(place.schema_id, error)
                    continue
            self._met.put((topic, place), True)
            known.append(place)
        if known:
            self._newest.put(topic, newest_of(known))


def _raise(error: Exception, data: bytes, start: int) -> Any:
    raise error.with_traceback(None)
