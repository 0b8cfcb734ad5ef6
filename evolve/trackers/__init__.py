"""Curves of a run in the tools that people watch experiments with: TensorBoard, Weights & Biases.

A tracker gets stored data only, one `Point` per told step, and nothing depends on it: the database
holds every number that it shows. The libraries are extras, imported when a run begins.
"""

from evolve.trackers.feed import Feed
from evolve.trackers.tracker import DetailTracker, Point, Tracker, TrackerFailed, point

__all__ = ["DetailTracker", "Feed", "Point", "Tracker", "TrackerFailed", "point"]
