"""The first call of a process is as ready to be sent as any other when it is committed."""

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, sys
from dataclasses import replace
from evolve.testing.model_server import ModelServer
from tests.llm.conftest import request
from tests.search.model_run import over_http

loaded = {}

def script(_):
    loaded["seen"] = set(sys.modules)
    return "an answer"

async def main(api_base):
    model = over_http(api_base)
    asked = replace(request("a question"), model="openai/scripted")
    await model.complete(asked, 0, lambda: loaded.update(committed=set(sys.modules)))
    await model.close()

with ModelServer(script) as server:
    asyncio.run(main(server.api_base))
print(sorted(loaded["seen"] - loaded["committed"]))
"""


@pytest.mark.slow
def test_nothing_is_imported_between_committing_a_call_and_sending_it():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr[-2000:] + done.stdout
