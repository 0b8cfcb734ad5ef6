"""The server against its own OpenAPI schema (schemathesis): whatever a client may send.

Invariant: no request makes the server fail, or answer in another way than its schema says.
"""

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serve.serving import serving

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
TOKEN = "correct-horse-battery-staple"
EXAMPLES = 50  # of each operation


@pytest.mark.timeout(600)
def test_every_operation_answers_as_its_schema_says(tmp_path):
    with serving(tmp_path, token=TOKEN, references="any", queue=64) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 12
        for operation in operations:

            @given(case=operation.as_strategy())
            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[*HealthCheck])
            def answers(case):
                for asked in (case.query, case.body):
                    if isinstance(asked, dict) and "wait_s" in asked:
                        asked["wait_s"] = 0
                case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {TOKEN}"})

            answers()
        assert server.ask.get("/health").json()["status"] == "healthy"
