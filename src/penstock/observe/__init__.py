"""Samples a server at intervals, and writes and reads recordings of the samples. The diagnose room interprets them."""

from penstock.observe.recordings import Recorder, read_recording
from penstock.observe.sampler import Sampler, sample_on_clock, sampling_beside
from penstock.observe.statements import strip_literals

__all__ = ["Recorder", "Sampler", "read_recording", "sample_on_clock", "sampling_beside", "strip_literals"]
