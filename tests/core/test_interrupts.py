"""Tests that interrupts are held back and none is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from penstock.core.host.process import holding_interrupts


def _interrupt(number: int = signal.SIGINT) -> None:
    signal.raise_signal(number)


def test_interrupt_is_raised_at_the_end_of_the_context() -> None:
    """The statements after it run."""
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), holding_interrupts():
        _interrupt()
        done.append(1)
    assert done == [1]


def test_interrupt_is_raised_where_the_context_takes_it() -> None:
    """Two that arrived together are raised as one, and are not raised again."""
    with holding_interrupts(limit=2) as interrupts:
        interrupts.deliver()
        _interrupt()
        _interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupts.deliver()
        interrupts.deliver()


def test_interrupt_beyond_the_limit_is_raised_at_once() -> None:
    """A main thread that hangs can be left."""
    with pytest.raises(KeyboardInterrupt), holding_interrupts(limit=1):
        _interrupt()
        with pytest.raises(KeyboardInterrupt):
            _interrupt()


def test_interrupt_takes_the_place_of_an_error() -> None:
    """The error is not retried then; it is the context of the interrupt."""
    with pytest.raises(KeyboardInterrupt) as caught, holding_interrupts():
        _interrupt()
        raise ValueError
    assert isinstance(caught.value.__context__, ValueError)


def test_dropped_interrupt_is_not_raised() -> None:
    """As while a COMMIT is on its way."""
    with holding_interrupts() as interrupts:
        _interrupt()
        interrupts.drop()


def test_inner_context_delivers_to_the_outer_one() -> None:
    """The outer one decides when it is raised."""
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), holding_interrupts():
        with holding_interrupts():
            _interrupt()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_handlers_are_restored_and_default_actions_stay() -> None:
    """SIGTERM without a handler ends the process as ever, and SIGHUP stays ignored as by nohup."""
    before = signal.getsignal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with holding_interrupts():
            assert signal.getsignal(signal.SIGINT) != before
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert signal.getsignal(signal.SIGINT) == before


def test_handler_that_is_not_restored_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt while the handlers are restored, one by one, can leave the others behind."""
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch, holding_interrupts():
        held = signal.getsignal(signal.SIGINT)
        patch.setattr(signal, "signal", lambda *_: None)
    try:
        assert signal.getsignal(signal.SIGINT) == held
        with pytest.raises(KeyboardInterrupt):
            _interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_hold_nothing() -> None:
    """Python runs handlers in the main thread only."""
    handlers: list[Callable[..., object] | int | None] = []

    def run() -> None:
        with holding_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
