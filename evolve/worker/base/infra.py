"""Faults that are never held against a candidate; without torch, which the locks do not need."""


class InfraFault(Exception):
    """Our own machinery failed; never held against a candidate."""


class CrowdedFault(InfraFault):
    """The device was busy, and candidates beside the one that is judged may be the reason."""


class OccupiedFault(CrowdedFault):
    """It stayed so with this judge idle: other processes are at work, for every candidate."""
