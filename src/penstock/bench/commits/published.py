"""The article's measurements, as data. They were not measured here, and are shown with their source. Pure."""

from __future__ import annotations

SOURCE = (
    "Franck Pachot, AWS Aurora IO:XactSync is not a PostgreSQL wait event (dbi-services.com, 2020): Aurora PostgreSQL "
    "11.6, db.r5.large, 10 M rows by my_insert, beside a sampler but for the 133.4 s at 100,000 rows per commit"
)

SHORT_SOURCE = "Aurora PostgreSQL 11.6 (dbi-services.com, 2020)"

# Seconds by rows per commit. The article's table ends at 100.
SECONDS = {
    10_000_000: 135.9,
    1_000_000: 136.1,
    100_000: 133.4,
    10_000: 141.8,
    1_000: 177.6,
    100: 373.5,
}

# At these rows per commit, the article's seconds are from a run without its sampler.
UNSAMPLED = frozenset({100_000})

# The article's samples by rows per commit: CPU, IO:WALWrite, IO:XactSync.
SAMPLES = {
    10_000_000: (346, 44, 0),
    1_000_000: (349, 38, 3),
    100_000: (315, 35, 30),
    10_000: (283, 32, 91),
    1_000: (252, 32, 250),
    100: (249, 24, 776),
}
