"""The rule for checkpoints that follow each other too closely, so that most of the WAL is full-page images."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.core.units import GIB, KIB, MB
from penstock.diagnose.rules.case import LEAST_SHARE, Case, bounded, change_setting, number
from penstock.watch.rates import Increase
from penstock.watch.waits import ActivityTally

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.diagnose.rules.background import IoWaits
    from penstock.watch.risks import RiskMeter
    from penstock.watch.values import Sample
    from penstock.watch.waits import Moment

# If checkpoints are requested at least this often, WAL forces them. Nobody types CHECKPOINT so often.
_OFTEN_S = 30.0
_FEWEST_CHECKPOINTS = 3

# A checkpoint_timeout up to this is short, if most of the WAL is full-page images.
_SHORT_TIMEOUT_S = 120.0

# Two conditions for forced checkpoints. If WAL has few full-page images, fewer checkpoints would not make it smaller.
# If much less WAL than max_wal_size allows is written between two checkpoints, not WAL but something else requests the
# checkpoints.
_LEAST_IMAGES = 0.2
_LEAST_DISTANCE = 0.5

# If most of the WAL is full-page images, short commits wait for these images too. Otherwise the waits of short
# transactions count only if a commit has more WAL than _LEAST_COMMIT_BYTES, because smaller flushes do not get faster
# without full-page images. Measured with three sessions on 18.4: without forced checkpoints, commits of 350 kB were
# faster by 18 %, and commits of 24 kB were not.
_MOST_IMAGES = 0.5
_LEAST_COMMIT_BYTES = 256 * KIB

# Of the waits of short commits, at most this part is gained without images. Measured: 0.13 to 0.64.
_COMMIT_GAIN = 0.65

_BLOCK_BYTES = 8192

# The units in which the server shows settings.
_BYTES = {"kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


class Checkpoints:
    """The rule for checkpoints that max_wal_size forces, or that a short checkpoint_timeout starts."""

    def __init__(self, io: IoWaits, seen: RiskMeter) -> None:
        self._io, self._seen = io, seen
        self._requested, self._timed = Increase(), Increase()
        self._images, self._image_bytes, self._wal_bytes = Increase(), Increase(), Increase()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:  # noqa: ARG002 (a rule's signature)
        """Add a sample's counters of checkpoints and WAL. `moments`, its active sessions, are not used."""
        counters = sample.counters
        for row in counters.get("pg_stat_checkpointer", ()):
            self._requested.see(row.get("num_requested"))
            self._timed.see(row.get("num_timed"))
        for row in counters.get("pg_stat_bgwriter", ()):
            # Before PostgreSQL 17, pg_stat_bgwriter has these counters.
            self._requested.see(row.get("checkpoints_req"))
            self._timed.see(row.get("checkpoints_timed"))
        for row in counters.get("pg_stat_wal", ()):
            self._images.see(row.get("wal_fpi"))
            self._image_bytes.see(row.get("wal_fpi_bytes"))
            self._wal_bytes.see(row.get("wal_bytes"))

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if checkpoints are frequent while sessions wait for I/O or WAL with full-page images."""
        wal_bytes = self._wal_bytes.total
        images = _share_of_images(self._images.total, self._image_bytes.total or None, wal_bytes)
        if case.io is not None:
            # Use the images of this workload alone. Those of other sessions do not show what this workload would gain.
            images = _share_of_images(case.io.wal_images or 0, case.io.wal_image_bytes, case.io.wal_bytes or 0)
        code = self._find_code(case, images)
        part = ActivityTally()
        part.join(self._io.data)
        self._io.join_wal_to(part, is_all=images >= _MOST_IMAGES or case.is_written_per_commit(_LEAST_COMMIT_BYTES))
        if code is None or case.share(part) < LEAST_SHARE:
            return []
        requested, timed = self._requested.total, self._timed.total
        evidence = [
            number("checkpoints requested", requested),
            number("checkpoints timed", timed),
            *([number("between two of them", case.counted_s / requested, "s")] if requested else []),
            number("of the WAL are full-page images, at most", 100 * images, "%"),
            number("full-page images", self._images.total / case.counted_s, "/s"),
            number("WAL", wal_bytes / case.counted_s / MB, "MB/s"),
        ]
        settings = case.header.settings
        name = "max_wal_size" if code == "checkpoints-forced" else "checkpoint_timeout"
        setting, size_gib = settings.get(name, "its present value"), _size_gib(settings, wal_bytes / case.counted_s)
        if code == "checkpoints-forced":
            advice = self._advise_size(case, size_gib)
        else:
            change = change_setting(case.header, name, "'15min'", in_group="900 (seconds)")
            advice = f"Raise checkpoint_timeout: {change}."
        # Without images, the flush of a short commit is shorter, but not gone.
        short = 1 - (self._io.data.seconds + self._io.long.seconds) / (part.seconds or 1.0)
        gains = images * (1 - short) + min(images, _COMMIT_GAIN) * short
        found = bounded(case.conclude(code, part, evidence, setting=setting, advice=advice), gains)
        return [found] if found.rank >= LEAST_SHARE else []

    def _advise_size(self, case: Case, needed_gib: int) -> str:
        """Return the advice for max_wal_size. At most a quarter of the free space of its disk is used, as in a load."""
        free, now = self._seen.free_for_wal, self._seen.number("max_wal_size") or 0
        # The present size is reached, so a size that the rate alone asks for may be too small.
        needed_gib = max(needed_gib, math.ceil(2 * now / GIB))
        size_gib = needed_gib if free is None else min(needed_gib, free // 4 // GIB)
        if size_gib * GIB <= now:
            return "The disk of pg_wal has too little room for a larger max_wal_size: enlarge it first."
        change = change_setting(case.header, "max_wal_size", f"'{size_gib}GB'", in_group=f"{size_gib * 1024} (MB)")
        return (
            "For good, a size that is not reached before checkpoint_timeout at this rate of WAL, up to 64GB, as far as "
            f"the disk of pg_wal has room for it: {change}. For some hours: "
            f"penstock settings apply max_wal_size={size_gib}GB."
        )

    def _find_code(self, case: Case, images: float) -> str | None:
        """Return which setting makes checkpoints frequent, as the code of its diagnosis, or None."""
        count, settings = self._requested.total, case.header.settings
        often = max(_FEWEST_CHECKPOINTS, case.counted_s / _OFTEN_S)
        if count >= often and count > self._timed.total:
            is_by_wal = self._wal_bytes.total >= _LEAST_DISTANCE * count * _distance(settings)
            return "checkpoints-forced" if images >= _LEAST_IMAGES and is_by_wal else None
        timeout_s = _read(settings.get("checkpoint_timeout", ""), _SECONDS)
        is_started = self._timed.total > 0 or case.counted_s < timeout_s
        is_short = 0 < timeout_s <= _SHORT_TIMEOUT_S and is_started
        return "checkpoints-timed" if is_short and images >= _MOST_IMAGES else None


def _share_of_images(images: float, image_bytes: float | None, wal_bytes: float) -> float:
    """Return the largest part of the WAL that may be full-page images. `image_bytes` is known since PostgreSQL 19."""
    if image_bytes is None:
        image_bytes = images * _BLOCK_BYTES
    return min(1.0, image_bytes / wal_bytes) if wal_bytes else 0.0


def _distance(settings: Mapping[str, str]) -> float:
    """Return the bytes of WAL after which max_wal_size requests a checkpoint, 0 if the settings are not known.

    Source: CalculateCheckpointSegments in xlog.c.

    >>> round(_distance({"max_wal_size": "1GB", "checkpoint_completion_target": "0.9"}) / 2**20)
    539
    """
    size_bytes = _read(settings.get("max_wal_size", ""), _BYTES)
    return size_bytes / (1 + float(settings.get("checkpoint_completion_target", "0.9")))


def _size_gib(settings: Mapping[str, str], wal_bytes_per_s: float) -> int:
    """Return a max_wal_size in GiB, at most 64, that WAL of this rate does not reach before checkpoint_timeout.

    >>> _size_gib({"checkpoint_timeout": "5min"}, 7e6), _size_gib({}, 0)
    (4, 1)
    """
    timeout_s = _read(settings.get("checkpoint_timeout", ""), _SECONDS) or 300
    target = float(settings.get("checkpoint_completion_target", "0.9"))
    return min(64, max(1, math.ceil(wal_bytes_per_s * timeout_s * (1 + target) / GIB)))


def _read(setting: str, units: Mapping[str, int]) -> float:
    """Return a setting's value in the smallest unit, 0 if it is not known.

    >>> _read("5min", _SECONDS), _read("64MB", _BYTES), _read("", _BYTES)
    (300, 67108864, 0)
    """
    found = re.fullmatch(r"(\d+)([a-zA-Z]+)", setting)
    return int(found[1]) * units.get(found[2], 0) if found else 0
