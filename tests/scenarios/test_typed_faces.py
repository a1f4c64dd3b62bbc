from __future__ import annotations

import sys

import pytest
from tests.support import ROOT

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from airflow_delta.operators.arguments import CheckedArguments
from typed_faces import classes, is_current


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_type_checkers_are_told_the_arguments_that_the_table_gives(kind: type[CheckedArguments]) -> None:
    assert is_current(kind), (
        f"The block under TYPE_CHECKING in {kind.__module__} is out of date. Run ./dev lint --fix."
    )
