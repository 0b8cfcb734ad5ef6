"""How far programs are from their references, by a script in a process of its own."""

import json
import os
import sys
from typing import Any

import pytest

from tests import forked_torch
from tests.forked import ROOT


def collected(request: pytest.FixtureRequest, parameter: str) -> set[Any]:
    """The values of a parameter in those tests of the module that are run with the fixture."""
    here = (item for item in request.session.items if item.path == request.path)
    users = (item for item in here if request.fixturename in getattr(item, "fixturenames", ()))
    params = (item.callspec.params for item in users if hasattr(item, "callspec"))
    return {each[parameter] for each in params if parameter in each}


def differences_by(
    script: str, *arguments: str, given: str = "", **environment: str
) -> dict[str, float]:
    """By name, as a script of this folder prints them: a pair in JSON on each line.

    Args:
        script: its module's name.
        arguments: after it.
        given: on its standard input.
        environment: of the process, beside our own.
    """
    command = [sys.executable, "-m", f"tests.operators.{script}", *arguments]
    done = forked_torch.run(command, env={**os.environ, **environment}, cwd=ROOT, given=given)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(map(json.loads, done.stdout.splitlines()))
