"""Sketches: what a source knows of its keys, in bounded memory."""

from unskew.sketches.sampling_window import SamplingWindow
from unskew.sketches.space_saving import SpaceSaving

__all__ = ["SamplingWindow", "SpaceSaving"]
