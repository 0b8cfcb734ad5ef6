"""The operators that ask a model hold to `ModelOperatorConformance`."""

from evolve.core.evaluation import Status
from evolve.core.program import Program
from evolve.testing.model_operators import ModelOperatorConformance
from evolve.testing.operators import RELATIVES
from operators import (
    Contrastive,
    Crossover,
    Edit,
    MacroMicro,
    Milestone,
    Repair,
    Review,
    RewriteFull,
    Summarise,
    Supervise,
    Template,
    Translate,
    Universal,
    WorldModel,
)
from tests.operators.history import constants_set, failing


class TestRewriteFull(ModelOperatorConformance):
    def make(self):
        return RewriteFull()


class TestEdit(ModelOperatorConformance):
    def make(self):
        return Edit()


class TestUniversal(ModelOperatorConformance):
    def make(self):
        return Universal()


class TestUniversalWithADiagnosisOfTheModel(ModelOperatorConformance):
    def make(self):
        return Universal(diagnosis="model")


class TestCrossover(ModelOperatorConformance):
    def make(self):
        return Crossover()


class TestMacroMicro(ModelOperatorConformance):
    def make(self):
        return MacroMicro()


class TestMacroMicroUniform(ModelOperatorConformance):
    def make(self):
        return MacroMicro(policy="uniform")


class TestTemplate(ModelOperatorConformance):
    def make(self):
        return Template()


class TestTranslate(ModelOperatorConformance):
    def make(self):
        return Translate()


class TestSummarise(ModelOperatorConformance):
    def make(self):
        return Summarise(every=1)


class TestWorldModel(ModelOperatorConformance):
    def make(self):
        return WorldModel()


class TestSupervise(ModelOperatorConformance):
    def make(self):
        return Supervise(stalled=1)


class TestMilestone(ModelOperatorConformance):
    def make(self):
        return Milestone()


class TestReview(ModelOperatorConformance):
    def make(self):
        return Review(jump=1.0)

    def sources(self):
        return TestContrastive.sources(self)


class TestContrastive(ModelOperatorConformance):
    def make(self):
        return Contrastive()

    def sources(self):
        return tuple(
            constants_set(source, BLOCK=block)
            for source, block in zip(RELATIVES, (16, 64, 96), strict=True)
        )


class TestRepair(ModelOperatorConformance):
    def make(self):
        return Repair(share=1.0)

    def _history(self, age):
        facts, elites = super()._history(age)
        broken = Program(f"{RELATIVES[0]}\nbroken = {age}\n")
        facts.judge(broken, verdict=failing(Status.OOM))
        return facts, elites
