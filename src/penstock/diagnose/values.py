"""The remedies of diagnoses. A remedy names only options that the user can still choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.core.values.accounts import LoadConditions

# How a remedy names each choice of a user. `list_choices` decides which choices a load has.
CHOICES: Final[Mapping[str, str]] = {
    "rebuild": "--indexes rebuild",
    "rebuild_keys": "--indexes rebuild",
    "keep_indexes": "--indexes keep",
    "disable_triggers": "--triggers disable",
    "pause_autovacuum": "--autovacuum pause",
    "bulk_load": "--settings bulk-load",
    "freeze": "--freeze always",
    "no_vacuum": "--no-vacuum",
    "no_checkpoint": "--no-checkpoint",
    "atomic": "--atomic",
    "not_atomic": "--atomic",
    "spool": "--spool",
    "replace": "--mode replace",
    "truncate": "--mode truncate --atomic",
    "more_sessions": "--sessions",
    "fewer_sessions": "--sessions",
    "via_client": "--via client",
    "text_format": "--copy-format text",
    "plain_text": "UTF-8, in PostgreSQL's text format or as CSV with commas",
    "more_files": "more files",
    "more_imports": "more files",
    "fast_codec": "zstd or lz4",
    "far_source": "the bucket or the web server",
    "near_source": "the disk",
    "pipe": "standard input or the pipe",
    "statement": "the statement of --transform",
    "recording": "penstock diagnose",
    "no_record": "--no-record",
}


@dataclass(frozen=True, slots=True)
class RemedySentence:
    """One sentence of a remedy."""

    text: str
    # Whether the sentence is only for loads by penstock (True) or only for other workloads (False). None means for
    # both.
    of_loads: bool | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Return the choices that the sentence names."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.text) if name and name in CHOICES)


def write_remedy(ways: Collection[RemedySentence], setting: LoadConditions | None, words: Mapping[str, str]) -> str:
    """Return the sentences that fit a workload. `setting` is a penstock load's, or None for another workload."""
    choices = CHOICES.keys() if setting is None else setting.choices
    is_load = setting is not None
    fitting = [way for way in ways if way.of_loads in (None, is_load) and way.needs.issubset(choices)]
    texts = [way.text.format(**CHOICES, **words) for way in fitting]
    # If a rule gives an empty text for a word, a sentence of this word alone is empty, and is left out.
    return " ".join(filter(None, texts)) or "No option of the load changes that."
