"""Whether a load holds for followers, from rows of the server alone."""

from __future__ import annotations

import pytest

from penstock.loading.yielding.lag import Follower, Holding, Limit, WalReceiver, WrittenWal, follow_receiver, read_limit

_LIMIT = Limit(seconds=30.0)


def _holding(limit: Limit = _LIMIT) -> Holding:
    return Holding(limit=limit, patience_s=60.0)


def _receiver(**fields: object) -> WalReceiver:
    known = {
        "kind": "standby",
        "name": "r1",
        "address": "10.0.0.1",
        "position": 1000,
        "behind_bytes": 500,
        "unflushed_bytes": 0,
        "replay_lag_s": 2.0,
        "reply_age_s": 0.1,
    }
    return WalReceiver(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds", "length_bytes"),
    [("30s", 30.0, None), ("5min", 300.0, None), ("1.5 h", 5400.0, None), ("1GB", None, 10**9), ("64kB", None, 64_000)],
)
def test_a_limit_is_a_time_or_a_size(text: str, seconds: float | None, length_bytes: int | None) -> None:
    """By the unit, which a limit cannot be without."""
    assert read_limit(text) == Limit(seconds=seconds, length_bytes=length_bytes)


@pytest.mark.parametrize("text", ["30", "0s", "-1s", "1TB", "", "s"])
def test_a_limit_without_unit_or_of_nothing_is_refused(text: str) -> None:
    """So that nobody means seconds and gets bytes."""
    with pytest.raises(ValueError, match="30s"):
        read_limit(text)


def test_a_load_holds_at_the_limit_and_goes_on_below_a_third_of_it() -> None:
    """And it counts the seconds for which it held."""
    holding = _holding()
    assert holding.look([Follower(name="a", behind_s=1.0)], now_s=0.0) == []
    seen = []
    for now_s, behind_s in [(1.0, 29.0), (2.0, 30.0), (3.0, 11.0), (4.0, 10.0), (5.0, 9.9), (6.0, 29.0)]:
        holding.look([Follower(name="a", behind_s=behind_s)], now_s=now_s)
        seen.append(holding.holder is not None)
    assert seen == [False, True, True, True, False, False]
    assert (holding.held_s, holding.since_s) == (3.0, 2.0)


def test_the_follower_that_is_furthest_behind_is_named() -> None:
    """Not the first that was."""
    holding = _holding()
    holding.look([Follower(name="a"), Follower(name="b")], now_s=0.0)
    holding.look([Follower(name="a", behind_s=31.0), Follower(name="b", behind_s=45.0)], now_s=1.0)
    assert holding.holder is not None
    assert holding.holder.name == "b"


def test_a_follower_that_is_over_the_limit_at_first_or_comes_later_is_not_waited_for() -> None:
    """The first is named."""
    holding = _holding()
    texts = holding.look([Follower(name="delayed", behind_s=3600.0), Follower(name="a")], now_s=0.0)
    assert texts == ["delayed is 1 h 00 min behind: the load does not wait for it"]
    holding.look([Follower(name="delayed", behind_s=9e3), Follower(name="new", behind_s=9e3)], now_s=1.0)
    assert holding.holder is None


def test_a_follower_that_goes_away_stops_nobody() -> None:
    """The load goes on at the next look."""
    holding = _holding()
    holding.look([Follower(name="a")], now_s=0.0)
    holding.look([Follower(name="a", behind_s=31.0)], now_s=1.0)
    assert holding.holder is not None
    holding.look([], now_s=2.0)
    assert holding.holder is None


def test_a_standby_that_replays_nothing_of_what_it_has_is_not_waited_for_after_a_while() -> None:
    """One that lacks WAL, or replays some, is."""
    has, lacks, moves = (_receiver(name=name, replay_lag_s=99.0) for name in ("has", "lacks", "moves"))
    holding = _holding()
    holding.look([Follower(name='standby "has" (10.0.0.1)'), Follower(name='standby "lacks" (10.0.0.1)')], now_s=0.0)
    holding.names = (holding.names or frozenset()) | {'standby "moves" (10.0.0.1)'}
    texts = []
    for second in range(1, 80):
        rows = [
            has,
            _receiver(name=lacks.name, replay_lag_s=99.0, unflushed_bytes=400),
            _receiver(name=moves.name, replay_lag_s=99.0, position=1000 + second),
        ]
        texts += holding.look([*map(follow_receiver, rows)], now_s=float(second))
    assert len(texts) == 1
    assert texts[0].startswith('standby "has" (10.0.0.1) has the WAL and does not replay it')
    assert holding.names == {'standby "lacks" (10.0.0.1)', 'standby "moves" (10.0.0.1)'}


@pytest.mark.parametrize(
    ("fields", "behind_s"),
    [
        ({}, 2.0),
        ({"behind_bytes": 0}, 0.0),
        ({"replay_lag_s": None}, 0.0),
        ({"replay_lag_s": None, "reply_age_s": 9.0}, 0.0),
        ({"reply_age_s": 40.0}, 40.0),
        ({"reply_age_s": None, "replay_lag_s": None}, 0.0),
    ],
    ids=["lag", "nothing to replay", "no lag known", "young answer", "old answer", "no answer"],
)
def test_the_seconds_of_a_standby(fields: dict[str, object], behind_s: float) -> None:
    """Its replay_lag, or the age of its last answer while it has something to replay."""
    assert follow_receiver(_receiver(**fields)).behind_s == behind_s


def test_a_subscriber_that_answers_and_applies_nothing_is_behind() -> None:
    """By the time for which the WAL that it lacks has been there, whatever its last answer was."""
    written = WrittenWal()
    for now_s, position in [(0.0, 100), (1.0, 200), (2.0, 300), (3.0, 300)]:
        written.note(position, now_s=now_s)
    ages = [written.age_s(position, now_s=20.0) for position in (50, 100, 250, 300)]
    assert ages == [20.0, 19.0, 18.0, 0.0]
    assert follow_receiver(_receiver(kind="subscriber"), age_s=19.0).behind_s == 19.0


def test_after_a_failover_positions_begin_anew() -> None:
    """The new primary may have less WAL than the former one had written."""
    written = WrittenWal()
    written.note(300, now_s=0.0)
    written.note(200, now_s=5.0)
    assert written.age_s(100, now_s=6.0) == 1.0
