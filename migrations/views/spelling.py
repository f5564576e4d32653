"""What SQLite and PostgreSQL spell differently, with the same value on both.

Revisions call these, so that none may change its meaning: a revision that needs another one adds
it. SQLite keeps moments as text in UTC, `2026-01-31 12:00:00.123456`.
"""

from abc import ABC, abstractmethod


class Spelling(ABC):
    """Expressions of one database; every argument is an SQL expression itself.

    What is stored may be damaged on SQLite, which keeps any value in any column: an expression
    over a value that is not of its kind is null there, and never an error.
    """

    @abstractmethod
    def unix(self, at: str) -> str:
        """Seconds from 1970 to a moment."""

    @abstractmethod
    def age(self, at: str) -> str:
        """Seconds from a moment until the query."""

    @abstractmethod
    def between(self, begin: str, end: str) -> str:
        """Seconds from one moment to another."""

    @abstractmethod
    def is_within(self, at: str, seconds: int) -> str:
        """Whether a moment is at most so long ago; an index on the moment serves it."""

    @abstractmethod
    def day(self, at: str) -> str:
        """The day of a moment in UTC, `2026-01-31`."""

    @abstractmethod
    def hour(self, at: str) -> str:
        """The hour of a moment in UTC, `2026-01-31 12:00`."""

    @abstractmethod
    def hour_unix(self, at: str) -> str:
        """Seconds from 1970 to the beginning of a moment's hour, a whole number."""

    @abstractmethod
    def before(self, text: str, mark: str) -> str:
        """What stands in a text before a mark that is in it."""

    @abstractmethod
    def setting(self, text: str, name: str) -> str:
        """The value of `name=value` in a list with commas; null where it has none."""

    @abstractmethod
    def text(self, json: str) -> str:
        """JSON as the text that was stored."""

    @abstractmethod
    def number(self, json: str, name: str) -> str:
        """A number of a JSON object; null where it has none of that name."""

    @abstractmethod
    def largest(self, json: str, field: str, *, name: bool) -> str:
        """Of a JSON object of objects the largest number called `field`, or whose that is."""

    @abstractmethod
    def length(self, json: str, name: str) -> str:
        """The length of an array in a JSON object; null where it has none of that name."""

    @abstractmethod
    def numbers(self, json: str, name: str) -> str:
        """An array of numbers, or of such arrays, in a JSON object, as text without blanks."""


class Sqlite(Spelling):
    """SQLite from 3.38 on."""

    def unix(self, at: str) -> str:
        return f"({_microseconds(at)} / 1000000.0)"

    def age(self, at: str) -> str:
        return f"((julianday('now') - julianday({at})) * 86400.0)"

    def between(self, begin: str, end: str) -> str:
        return f"(({_microseconds(end)} - {_microseconds(begin)}) / 1000000.0)"

    def is_within(self, at: str, seconds: int) -> str:
        return f"{at} >= strftime('%Y-%m-%d %H:%M:%f', 'now', '-{seconds} seconds')"

    def day(self, at: str) -> str:
        return f"substr({at}, 1, 10)"

    def hour(self, at: str) -> str:
        return f"(substr({at}, 1, 13) || ':00')"

    def hour_unix(self, at: str) -> str:
        return f"({_seconds(at)} / 3600 * 3600)"

    def before(self, text: str, mark: str) -> str:
        return f"substr({text}, 1, instr({text}, '{mark}') - 1)"

    def setting(self, text: str, name: str) -> str:
        rest = f"substr({text}, instr({text}, '{name}=') + {len(name) + 1})"
        value = f"substr({rest}, 1, instr({rest} || ',', ',') - 1)"
        return f"(CASE WHEN instr({text}, '{name}=') > 0 THEN {value} END)"

    def text(self, json: str) -> str:
        return f"CAST({json} AS TEXT)"

    def number(self, json: str, name: str) -> str:
        return _number(_valid(json), f"$.{name}")

    def largest(self, json: str, field: str, *, name: bool) -> str:
        found = f"(CASE WHEN e.type = 'object' THEN {_number('e.value', f'$.{field}')} END)"
        return (
            f"(SELECT {'e.key' if name else found} FROM json_each({_valid(json)}) AS e"
            f" WHERE {found} IS NOT NULL ORDER BY {found} DESC, e.key LIMIT 1)"
        )

    def length(self, json: str, name: str) -> str:
        return _of_array(json, name, "json_array_length")

    def numbers(self, json: str, name: str) -> str:
        return _of_array(json, name, "json_extract")


class Postgresql(Spelling):
    """PostgreSQL from 13 on."""

    def unix(self, at: str) -> str:
        return f"CAST(extract(epoch FROM {at}) AS double precision)"

    def age(self, at: str) -> str:
        return self.between(at, "statement_timestamp()")

    def between(self, begin: str, end: str) -> str:
        return f"CAST(extract(epoch FROM {end} - {begin}) AS double precision)"

    def is_within(self, at: str, seconds: int) -> str:
        return f"{at} >= statement_timestamp() - interval '{seconds} seconds'"

    def day(self, at: str) -> str:
        return f"to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD')"

    def hour(self, at: str) -> str:
        return f"(to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24') || ':00')"

    def hour_unix(self, at: str) -> str:
        return f"(CAST(floor(extract(epoch FROM {at}) / 3600) AS bigint) * 3600)"

    def before(self, text: str, mark: str) -> str:
        return f"split_part({text}, '{mark}', 1)"

    def setting(self, text: str, name: str) -> str:
        return f"substring({text} FROM '{name}=([^,]*)')"

    def text(self, json: str) -> str:
        return f"CAST({json} AS text)"

    def number(self, json: str, name: str) -> str:
        return (
            f"(CASE WHEN json_typeof({json} -> '{name}') = 'number'"
            f" THEN CAST({json} ->> '{name}' AS double precision) END)"
        )

    def largest(self, json: str, field: str, *, name: bool) -> str:
        found = self.number("e.value", field)
        objects = f"CASE WHEN json_typeof({json}) = 'object' THEN {json} END"
        return (
            f"(SELECT {'e.key' if name else found} FROM json_each({objects}) AS e(key, value)"
            f' WHERE {found} IS NOT NULL ORDER BY {found} DESC, e.key COLLATE "C" LIMIT 1)'
        )

    def length(self, json: str, name: str) -> str:
        return self._of_array(json, name, f"json_array_length({json} -> '{name}')")

    def numbers(self, json: str, name: str) -> str:
        return self._of_array(json, name, f"replace(CAST({json} -> '{name}' AS text), ' ', '')")

    def _of_array(self, json: str, name: str, found: str) -> str:
        return f"(CASE WHEN json_typeof({json} -> '{name}') = 'array' THEN {found} END)"


def of(dialect: str) -> Spelling:
    """The spelling of a database, by the name of its dialect."""
    return Postgresql() if dialect == "postgresql" else Sqlite()


def _seconds(at: str) -> str:
    """Whole ones from 1970, without the fraction: SQLite rounds .9995 up to the next second."""
    return f"CAST(strftime('%s', substr({at}, 1, 19)) AS INTEGER)"


def _microseconds(at: str) -> str:
    """From 1970, a whole number, so that its quotient is rounded once, as PostgreSQL's is."""
    return f"({_seconds(at)} * 1000000 + CAST(substr({at}, 21, 6) AS INTEGER))"


def _valid(json: str) -> str:
    """SQLite's functions fail, and with them the whole query, on a text that is no JSON."""
    return (
        f"(CASE WHEN typeof({json}) = 'text' THEN CASE WHEN json_valid({json}) THEN {json} END END)"
    )


def _number(json: str, path: str) -> str:
    is_number = f"json_type({json}, '{path}') IN ('real', 'integer')"
    return f"(CASE WHEN {is_number} THEN CAST(json_extract({json}, '{path}') AS REAL) END)"


def _of_array(json: str, name: str, function: str) -> str:
    valid, path = _valid(json), f"'$.{name}'"
    return f"(CASE WHEN json_type({valid}, {path}) = 'array' THEN {function}({valid}, {path}) END)"
