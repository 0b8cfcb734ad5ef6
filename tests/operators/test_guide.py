"""The operator that the guide shows works as it stands there, and holds to the contract."""

import re
from pathlib import Path

from evolve.testing.model_operators import ModelOperatorConformance
from tests.operators.history import prompt_of, request_of
from tests.operators.test_prompts import small_run

GUIDE = Path(__file__).parents[2] / "examples" / "guides" / "operators.md"


def shown_operator():
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "vectorise"}
    exec(compile(code, str(GUIDE), "exec"), names)
    return names["Vectorise"]


class TestVectorise(ModelOperatorConformance):
    def make(self):
        return OPERATOR()


OPERATOR = shown_operator()


def test_its_job_is_in_the_prompt():
    history = small_run()
    prompt = prompt_of(request_of(OPERATOR(), history.context(history.elites()[:1])))
    assert "explicit vector intrinsics" in prompt
