"""Declares the options of a load: each is declared once, as a field of a dataclass.

The field has the option's name, type and default; `options_in` adds the option's help, and how values of the option are
read. The command line (`--on-error`), job files, the Python functions (`on_error`) and the ledger's JSON pass their
values unread to the dataclass, and `read_options` reads them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.units import GB, MB
from penstock.core.values.names import parse_table_name, quote_table
from penstock.core.values.table import TableName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_KEY = "option"
_SIZE = "SIZE"
_SIZES = {"kB": 1000, "MB": MB, "GB": GB}
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TEXTS = "str | list[str] | tuple[str, ...]"
_NAMED_ESCAPES = {r"\t": "\t", r"\n": "\n", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\v": "\v", r"\\": "\\"}
# A table's name that needs no quotes in SQL.
_PLAIN_TABLE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")
_NUMBERED_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3}))")


@slotted
class OptionKind:
    """How values of one kind are read and shown."""

    # Reads the value that was given for an option: a text, or a value that has been read already. It raises ValueError
    # with a description of the allowed values.
    read: Callable[[Any], object]
    # How the help shows the value; None for a switch.
    metavar: str | None
    # The type of values that Python functions accept.
    hint: str
    # Whether the option may be repeated.
    is_list: bool = False


@slotted
class Option:
    """What an option has in addition to its field: a kind, a help text, and the panel of --help that lists it."""

    kind: OptionKind
    group: str
    help: str


class OptionError(UsageError):
    """The value of an option is invalid.

    The error has the name of the option's field until `spelled` replaces it.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name = name
        # Values of other types are not shown: a list may contain a password.
        self._shown = f' "{value}"' if isinstance(value, (str, int, float)) else ""
        super().__init__(f"invalid value{self._shown} for {name}", hint=f"Use {expected}.")

    def __reduce__(self) -> tuple[type[UsageError], tuple[str], dict[str, object]]:
        """Return what another process makes the error from, if a worker of a pool raises it."""
        return UsageError, (self.message,), vars(self)

    def spelled(self, name: str) -> UsageError:
        """Return the same error with the option's name as the user wrote it, such as --on-error."""
        return UsageError(f"invalid value{self._shown} for {name}", hint=self.hint)


def options_in(group: str) -> Callable[[Any, OptionKind, str], Any]:
    """Return a function that declares an option, which the help shows in the panel `group`.

    The function takes the option's default (MISSING if it has none), its kind and its help.
    """

    def option(default: Any, kind: OptionKind, text: str) -> Any:
        metadata = {_KEY: Option(kind=kind, group=group, help=text)}
        if default == {}:
            return field(default_factory=dict, metadata=metadata)
        return field(default=default, metadata=metadata)

    return option


def option_of(field: Field[Any]) -> Option | None:
    """Return the option that a field declares, None if the field is not an option."""
    found: Option | None = field.metadata.get(_KEY)
    return found


def describe_value(field: Field[Any]) -> str:
    """Return the help of an option for Python functions: for a switch that is on by default, what False does."""
    option = option_of(field)
    assert option is not None
    if option.kind.metavar is not None or field.default is not True:
        return option.help
    return f"If False, {option.help[:1].lower()}{option.help[1:]}"


def option_fields(kind: type[DataclassInstance]) -> dict[str, Field[Any]]:
    """Return the fields of a dataclass that declare options, by name."""
    return {field.name: field for field in fields(kind) if option_of(field) is not None}


def pick(kind: type[DataclassInstance], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given values whose names are options of a dataclass."""
    return {name: given[name] for name in option_fields(kind) if name in given}


def read_options(instance: DataclassInstance) -> None:
    """Replace the values of a dataclass's options by what their kinds read from them, although it is frozen.

    Raises UsageError if a value is invalid.
    """
    for name, declared in option_fields(type(instance)).items():
        value, found = getattr(instance, name), option_of(declared)
        if found is not None and value is not declared.default:
            try:
                object.__setattr__(instance, name, found.kind.read(value))
            except ValueError as exc:
                raise OptionError(name, value, str(exc)) from None


def spell_options(instance: DataclassInstance) -> list[str]:
    """Return the words of a command line for the options of a dataclass that do not have their default values."""
    words: list[str] = []
    for name, declared in option_fields(type(instance)).items():
        value, found = getattr(instance, name), option_of(declared)
        if found is not None and value not in (declared.default, None, (), {}):
            flag = f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
            words += (
                [flag]
                if found.kind.metavar is None
                else [w for each in _spell(found.kind, value) for w in (flag, each)]
            )
    return words


def _spell(kind: OptionKind, value: Any) -> list[str]:
    """Return the texts of an option's value, several if the option is repeated."""
    if kind is NAMES:
        return [",".join(map(quote_name, value))]
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    if isinstance(value, tuple):
        return list(value)
    if kind.metavar == _SIZE:
        return [f"{value // MB}MB" if value % MB == 0 else f"{value / 1000}kB"]
    if kind is CHARACTER:
        return [next((escape for escape, character in _NAMED_ESCAPES.items() if character == value), value)]
    is_quoted = isinstance(value, TableName) and not _PLAIN_TABLE.fullmatch(str(value))
    return [quote_table(value) if is_quoted else str(value)]


def _read_switch(value: Any) -> bool:
    if value is not True and value is not False:
        raise ValueError("true or false")
    return bool(value)


def read_text(value: Any) -> str:
    """Return the value if it is a text; raise ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError("a text")  # noqa: TRY004 (read_options turns ValueError into OptionError)
    return value


def _read_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(read_text(value))


def words_by_column(known: Collection[str], what: str) -> OptionKind:
    """Return the kind of options that give one of the words `known` to a column, or to all columns.

    The option is given as COLUMN=WORD or WORD, and its value is a mapping from columns to words. A word without a
    column gets the key "*", which means all columns to which the option applies. A column may be in quotes, as in a
    list of names. The help shows `what` for the word.
    """

    def read(value: Any) -> Mapping[str, str]:
        texts = [] if isinstance(value, Mapping) else read_texts(value)
        split = ((_unquote(column), word) for column, _, word in (text.rpartition("=") for text in texts))
        pairs = [*value.items()] if isinstance(value, Mapping) else [*split]
        found = {column or "*": word for column, word in pairs if isinstance(column, str) and word in known}
        if len(found) < len(pairs):
            raise ValueError(f"{', '.join(map(repr, known))}, or COLUMN= and one of these, each column once")
        return found

    return OptionKind(read=read, metavar=f"[COLUMN=]{what}", hint=f"Mapping[str, str] | {_TEXTS}", is_list=True)


def words(literal: Any) -> OptionKind:
    """Return the kind of options whose value is one of some words: those of a Literal, or the keys of a dict."""
    known: Collection[str] = get_args(literal) or literal
    *others, last = known

    def read(value: Any) -> str:
        if value not in known:
            raise ValueError(f"{', '.join(others)} or {last}")
        return str(value)

    hint = f"Literal[{', '.join(f'{chr(34)}{word}{chr(34)}' for word in known)}]"
    return OptionKind(read=read, metavar="|".join(known), hint=hint)


def read_texts(value: Any) -> tuple[str, ...]:
    """Return several texts as a tuple. A single text is accepted too. Raises ValueError for other values."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError("a text, or a list of texts")
    return tuple(texts)


def read_names(value: Any) -> tuple[str, ...]:
    """Return the names of a list, or of a text such as a,b,"c,d". Raises ValueError.

    >>> read_names('id, "a,b"')
    ('id', 'a,b')
    """
    names = split_names(value) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("names such as a,b; fields that are not wanted are left out by skip")
    return tuple(names)


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list, without folding their case."""
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def join_lists(texts: Sequence[str] | None) -> str | None:
    """Return the comma-separated lists of an option that may be given several times as one; None if there is none.

    >>> join_lists(["a,b", "c"])
    'a,b,c'
    """
    return ",".join(texts) if texts else None


def quote_name(name: str) -> str:
    """Return a name as a comma-separated list has it: in quotes if it has a comma, a quote or blanks at its ends.

    >>> print(quote_name("price (€)"), quote_name("a,b"))
    price (€) "a,b"
    """
    is_plain = name == name.strip() and not set(name) & set(',"\n')
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _unquote(name: str) -> str:
    quoted = re.fullmatch(r'"(.+)"', name)
    return name if quoted is None else quoted[1].replace('""', '"')


def _read_values(value: Any) -> Mapping[str, str]:
    """Return columns and their values, from a mapping or from a list of COLUMN=VALUE."""
    pairs = list(value.items()) if isinstance(value, Mapping) else [_split_pair(text) for text in read_texts(value)]
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        raise ValueError("texts as values")
    if len(dict(pairs)) < len(pairs):
        raise ValueError("each column once")
    return dict(pairs)


def _read_renames(value: Any) -> Mapping[str, str]:
    """Return the new name of each old one, from a mapping or from a list of OLD=NEW; OLD may contain = itself."""
    texts = [] if isinstance(value, Mapping) else read_texts(value)
    pairs = list(value.items()) if isinstance(value, Mapping) else [text.rpartition("=")[::2] for text in texts]
    named = [(old.strip(), new.strip()) for old, new in pairs if isinstance(old, str) and isinstance(new, str)]
    if len(named) < len(pairs) or not all(old and new for old, new in named):
        raise ValueError("OLD=NEW, as in 'Customer No.=customer'")
    if len(dict(named)) < len(named):
        raise ValueError("each name of the file once")
    return dict(named)


def _split_pair(text: str) -> tuple[str, str]:
    column, separator, value = text.partition("=")
    if not separator or not column.strip():
        raise ValueError("COLUMN=VALUE, as in source={filename}, or note= for an empty string")
    return column.strip(), value


def _read_table(value: Any) -> TableName:
    """Return a table's name. Raises UsageError."""
    if isinstance(value, Mapping):
        return TableName(**value)
    return value if isinstance(value, TableName) else parse_table_name(read_text(value))


def read_character(value: Any) -> str:
    r"""Return the character that a text spells as in C (\t, \x1f, \037); other text is returned unchanged."""
    text = read_text(value)
    if match := _NUMBERED_ESCAPE.fullmatch(text):
        hexadecimal, octal = match.groups()
        return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8))
    return _NAMED_ESCAPES.get(text, text)


def _read_count(value: Any, *, least: int = 0) -> int:
    """Return a whole number of at least `least`, given as a number or as text."""
    is_text = isinstance(value, str) and value.isascii() and value.isdigit()
    if isinstance(value, bool) or not (is_text or isinstance(value, int)) or int(value) < least:
        raise ValueError(f"a number from {least} upwards")
    return int(value)


def _read_sessions(value: Any) -> int | None:
    if value == "auto":
        return None
    try:
        return _read_count(value, least=1)
    except ValueError as exc:
        raise ValueError(f"auto, or {exc}") from None


def read_duration(value: Any) -> float:
    """Return a time in seconds, given as a number of seconds or as PostgreSQL's settings spell it. Raises ValueError.

    >>> read_duration("5min"), read_duration("90"), read_duration("1.5 h")
    (300.0, 90.0, 5400.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)?", value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a time such as 30s, 5min or 1h")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def read_lag(value: Any) -> float | int:
    """Return a time in seconds as float, or a size in bytes as int, of a text such as 30s or 1GB. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d|kB|MB|GB)", value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise ValueError("a time such as 30s or a size such as 1GB")
    unit = match[2]
    return round(float(match[1]) * _SIZES[unit]) if unit in _SIZES else float(match[1]) * _SECONDS[unit]


def _check_lag(value: Any) -> str:
    read_lag(value)
    return str(value)


def parse_duration(text: str, *, option: str) -> float:
    """Return the time in seconds that was given for the option named `option`. Raises UsageError."""
    try:
        return read_duration(text)
    except ValueError as exc:
        raise OptionError(option, text, str(exc)) from None


def parse_counts(text: str, *, option: str) -> tuple[int, ...]:
    """Return the numbers of sessions in a comma-separated list, each once. Raises UsageError, which names `option`.

    >>> parse_counts("1, 2,4", option="--sessions")
    (1, 2, 4)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 1000 for part in parts):
        raise UsageError(f'invalid value "{text}" for {option}', hint="Use numbers such as 1,2,4.")
    return tuple(dict.fromkeys(map(int, parts)))


def _read_percent(value: Any) -> float:
    """Return a percentage, given as a number or as text such as 10%."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%?", str(value).strip())
    if match is None or float(match[1]) > 100:
        raise ValueError("a percentage from 0% to 100%")
    return float(match[1])


def size(least_bytes: int, most_bytes: int, expected: str) -> OptionKind:
    """Return the kind of options whose value is a number of bytes, or a size such as 512MB, within limits.

    `expected` describes the allowed values in errors.
    """

    def read(value: Any) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(kB|MB|GB)", value.strip()) if isinstance(value, str) else None
        length_bytes = round(float(match[1]) * _SIZES[match[2]]) if match is not None else value
        if not isinstance(length_bytes, int) or not least_bytes <= length_bytes <= most_bytes:
            raise ValueError(expected)
        return length_bytes

    return OptionKind(read=read, metavar=_SIZE, hint="int | str")


def text(metavar: str) -> OptionKind:
    """Return the kind of options whose value is any text."""
    return OptionKind(read=read_text, metavar=metavar, hint="str")


def texts(metavar: str) -> OptionKind:
    """Return the kind of options that take several texts."""
    return OptionKind(read=read_texts, metavar=metavar, hint=_TEXTS, is_list=True)


def path(metavar: str) -> OptionKind:
    """Return the kind of options whose value is a path."""
    return OptionKind(read=_read_path, metavar=metavar, hint="str | Path")


SWITCH = OptionKind(read=_read_switch, metavar=None, hint="bool")
TABLE = OptionKind(read=_read_table, metavar="TABLE", hint="str | TableName")
NAMES = OptionKind(read=read_names, metavar="LIST", hint=_TEXTS, is_list=True)
VALUES = OptionKind(read=_read_values, metavar="COLUMN=VALUE", hint=f"Mapping[str, str] | {_TEXTS}", is_list=True)
RENAMES = OptionKind(read=_read_renames, metavar="OLD=NEW", hint=f"Mapping[str, str] | {_TEXTS}", is_list=True)
CHARACTER = OptionKind(read=read_character, metavar="CHAR", hint="str")
COUNT = OptionKind(read=_read_count, metavar="N", hint="int")
SESSIONS = OptionKind(read=_read_sessions, metavar="auto|N", hint='int | Literal["auto"]')
PERCENT = OptionKind(read=_read_percent, metavar="PERCENT", hint="float | str")
LAG = OptionKind(read=_check_lag, metavar="TIME|SIZE", hint="str")
TIME = OptionKind(read=read_duration, metavar="TIME", hint="float | str")
