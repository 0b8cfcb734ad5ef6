"""Facts about this host that limit evaluations here."""

import os
from typing import Any

from evolve.worker.base.versions import versions
from evolve.worker.judge.judge import Judge
from evolve.worker.sandbox import policy
from evolve.worker.sandbox.policy import Mechanism


def examine(judge: Judge) -> dict[str, Any]:
    """The device, the versions, the sandbox tier, and for each mechanism whether it is in force."""
    launcher = judge.launcher
    reasons = dict(line.split(": ", 1) for line in launcher.reasons.splitlines() if ": " in line)
    return {
        "device": judge.device.describe(),
        "versions": versions(),
        "uid": os.getuid(),
        "sandbox": {
            "tier": launcher.tier,
            "mechanisms": {
                mechanism.name: {
                    "available": mechanism in Mechanism(launcher.mechanisms),
                    "why_not": reasons.get(mechanism.name or "", ""),
                }
                for mechanism in Mechanism
            },
            "missing": {tier: policy.missing_for(tier, launcher.mechanisms)
                        for tier in policy.TIERS},
        },
        "zygotes": [
            {"pid": zygote.pid, "threads": zygote.threads()} for zygote in launcher.zygotes()
        ],
    }  # fmt: skip
