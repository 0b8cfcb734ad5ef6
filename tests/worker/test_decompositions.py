"""Operations of an exported graph that the compiler leaves whole, by what the graph computes.

Invariants: a graph with them computes what the reference does, for every spelling; what only looks
like one of them stays as it is; a graph of any depth is read, in a time that grows with its size.
"""

import re

import pytest
import torch
from torch import nn
from torch.export import export
from torch.nn import functional as F

from evolve.core.compiled import WHOLE
from evolve.core.errors import UsageError
from evolve.worker.build.decompositions.norms import keep_norms
from evolve.worker.build.inductor import compile_model, settings
from tests.worker.decompositions_running import kept


class Reference(nn.Module):
    """A function of tensors, with layers by name."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            for parameter in layer.parameters():
                nn.init.normal_(parameter)
            setattr(self, name, layer)

    def forward(self, *tensors):
        return self.function(self, *tensors)


def found(function, *inputs, **layers):
    """The operators' names and settings, once their results are those of the reference."""
    torch.manual_seed(0)
    model = Reference(function, **layers)
    calls, same = kept(model, inputs)
    with torch.no_grad():
        torch.testing.assert_close(same(*inputs), model(*inputs), rtol=2e-5, atol=2e-5)
    return calls


def found_in_all(functions, *inputs):
    """Of several functions, or pairs of one and its layers, at once: an export takes a second."""
    pairs = [given if isinstance(given, tuple) else (given, {}) for given in functions]
    parts = {
        f"part_{n}": Reference(function, **layers) for n, (function, layers) in enumerate(pairs)
    }
    return found(lambda m, *given: [getattr(m, name)(*given) for name in parts], *inputs, **parts)


torch.manual_seed(0)  # of tensors drawn anew each time some are off by chance
X = torch.randn(40, 6, 5, 4)
FLAT = torch.randn(40, 30)


NORMS = {
    "layer": (lambda m, x: m.norm(x), {"norm": nn.LayerNorm((5, 4))}, [240, 20, 1]),
    "layer without weights": (lambda m, x: F.layer_norm(x, (4,)), {}, [1200, 4, 1]),
    "groups": (lambda m, x: m.norm(x), {"norm": nn.GroupNorm(2, 6)}, [80, 60, 1]),
    "instance": (lambda m, x: m.norm(x), {"norm": nn.InstanceNorm2d(6, affine=True)}, [240, 20, 1]),
    "rms": (lambda m, x: m.norm(x), {"norm": nn.RMSNorm(4)}, [1200, 4, 1]),
    "rms, spelled out": (
        lambda m, x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5),
        {},
        [40, 6, 20],
    ),
    "rms with a weight": (
        lambda m, x: m.l.weight[0] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        {"l": nn.Linear(4, 1)},
        [1200, 4, 1],
    ),
    "l2": (lambda m, x: x / torch.norm(x, p=2, dim=1, keepdim=True), {}, [40, 6, 20]),
    "l2 of a sum": (lambda m, x: x / (x * x).sum((2, 3), keepdim=True).sqrt(), {}, [240, 20, 1]),
    "l1": (lambda m, x: x / torch.mean(torch.abs(x), dim=1, keepdim=True), {}, [40, 6, 20]),
    "whole": (lambda m, x: x / torch.norm(x, p="fro"), {}, [1, 4800, 1]),
}


def test_norms_are_recognised_with_their_rows():
    calls = found_in_all([(function, layers) for function, layers, _ in NORMS.values()], X)
    rows = [(operator, settings[1]) for operator, settings in calls]
    assert rows == [("norm", view) for *_, view in NORMS.values()]


def test_a_weight_by_element_goes_into_the_norm_and_any_other_does_not():
    function = NORMS["rms with a weight"][0]
    model = Reference(function, l=nn.Linear(4, 1))
    calls, _ = kept(model, [X])
    assert [name for name, _ in calls] == ["norm"]
    scaled = found(lambda m, x: (x / torch.norm(x, p=1, dim=3, keepdim=True)) * x[:1], X)
    assert [name for name, _ in scaled] == ["norm"]


@pytest.mark.slow
def test_a_batch_norm_is_recognised_where_it_comes_first():
    layer = nn.BatchNorm2d(6)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    assert [name for name, _ in found(lambda m, x: m.norm(x), X, norm=layer)] == ["batch_norm"]
    assert found(lambda m, x: m.norm(x.relu()), X, norm=layer) == []


SCANS = {
    "sum": (lambda x: torch.cumsum(x, 1), (False, False, False)),
    "sum over the first": (lambda x: torch.cumsum(x, 0), (False, False, False)),
    "product": (lambda x: torch.cumprod(x, -1), (True, False, False)),
    "from the end": (lambda x: torch.cumsum(x.flip(1), 1).flip(1), (False, True, False)),
    "what comes before": (
        lambda x: torch.cat(
            (torch.zeros_like(x.select(1, 0).unsqueeze(1)), torch.cumsum(x.narrow(1, 0, 29), 1)), 1
        ),
        (False, False, True),
    ),
    "what comes before, sliced": (
        lambda x: torch.cat((torch.zeros(40, 1), torch.cumsum(x[:, :-1], dim=1)), dim=1),
        (False, False, True),
    ),
}


def test_scans_are_recognised_with_their_directions():
    scans = [
        lambda _, x, turned, function=function, name=name: function(
            turned if "first" in name else x
        )
        for name, (function, _) in SCANS.items()
    ]
    calls = found_in_all(scans, FLAT, FLAT.T.contiguous())
    ways = [(operator, tuple(settings[1:])) for operator, settings in calls]
    assert ways == [("scan", way) for _, way in SCANS.values()]


def test_a_mask_goes_into_the_scan():
    program = found(lambda _, x, mask: torch.cumsum(x * mask, 1), FLAT, FLAT > 0)
    assert [name for name, _ in program] == ["scan"]


A, B, C = torch.randn(3, 300, 256, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 256, (300,))
LABELS[::7] = -100
LOSSES = {
    "mean square": lambda a, b, c: F.mse_loss(a, b),
    "mean square, spelled out": lambda a, b, c: torch.mean((a - b) ** 2),
    "huber": lambda a, b, c: F.smooth_l1_loss(a, b),
    "divergence": lambda a, b, c: F.kl_div(a, b.abs(), reduction="batchmean"),
    "hinge": lambda a, b, c: torch.mean(torch.clamp(1 - a * b[0], min=0)),
    "a fourth tensor": lambda a, b, c: ((a - b) * (c - b * LABELS[:, None].abs() * 0.01)).mean(),
    "hinge by row": lambda a, b, c: torch.mean(torch.clamp(1 - a * b[:, :1].contiguous(), min=0)),
    "cosine": lambda a, b, c: torch.mean(1 - F.cosine_similarity(a, b, dim=1)),
    "triplets": lambda a, b, c: F.triplet_margin_loss(a, b, c),
    "weighted sum": lambda a, b, c: (torch.where(a > 0, a, b) * c).sum() / 7,
}


@pytest.mark.slow
def test_losses_are_totals_with_what_is_summed():
    losses = [lambda _, *given, loss=loss: loss(*given) for loss in LOSSES.values()]
    calls = found_in_all(losses, A, B, C)
    assert [(name, settings[2]) for name, settings in calls] == len(LOSSES) * [
        ("total", [300, 256])
    ]


def test_a_cross_entropy_is_one_of_rows_and_what_is_ignored_counts_not():
    entropies = [
        lambda _, x, reduction=reduction: F.cross_entropy(x, LABELS, reduction=reduction)
        for reduction in ("none", "mean", "sum")
    ]
    assert [name for name, _ in found_in_all(entropies, A)] == 3 * ["cross_entropy"]


def changed(x, y):
    """Divided by the length that it had before."""
    z = x + y
    length = torch.sqrt((z * z).mean(1, keepdim=True))
    z.view(-1).mul_(3)
    return z / length


OTHERS = {
    "another tensor": lambda x, y: x / torch.norm(y, p=2, dim=1, keepdim=True),
    "changed in between": changed,
    "a third power": lambda x, y: x / torch.sqrt((x**3).abs().mean(1, keepdim=True)),
    "few rows": lambda x, y: torch.cumsum(x[:8], 1),
    "whole numbers": lambda x, y: torch.cumsum(x.to(torch.int32), 1),
    "few elements": lambda x, y: F.mse_loss(x, y),
    "other arithmetic": lambda x, y: torch.erfinv(torch.tanh(x)).sum(),
    "weights of classes": lambda x, y: F.cross_entropy(
        x, torch.zeros(40, dtype=torch.int64), weight=y[0].abs()
    ),
    "float64": lambda x, y: F.layer_norm(x.double(), (30,)),
}


def test_what_only_looks_like_one_stays_as_it_is():
    others = [lambda _, x, y, f=f: f(x, y) for f in OTHERS.values()]
    assert found_in_all(others, FLAT, FLAT.roll(1, 0)) == []


def test_a_scan_between_what_only_looks_like_its_other_half_is_a_plain_one():
    def scans(_, x):
        ones = torch.cat((torch.ones(40, 1), torch.cumsum(x[:, :-1].contiguous(), 1)), 1)
        return ones, torch.cumsum(x.flip(0), 1).flip(0)

    calls = found(scans, FLAT)
    assert [(name, settings[1:]) for name, settings in calls] == [("scan", [False] * 3)] * 2


@pytest.mark.slow
def test_a_norm_over_dimensions_that_make_up_a_tensor_is_one_of_a_row():
    ((_, settings),) = found(lambda _, x: x / (x**2).mean((0, 1), keepdim=True).sqrt(), FLAT)
    assert settings[1] == [1, 1200, 1]
    assert found(lambda _, x: x / (x * x).mean((0, 2), keepdim=True).sqrt(), X) == []


def repeated(step, count):
    """The mean of what many steps make of a tensor."""

    def mean(_, x):
        for _ in range(count):
            x = step(x)
        return x.mean()

    return mean


@pytest.mark.sample(1)
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("step", "x", "operators"),
    [
        (lambda x: torch.erfinv(torch.tanh(x)) + 0.5 * x, A, ["total"]),
        (lambda x: torch.sigmoid(x) * 0.5 + x, A.T.contiguous().T, []),
    ],
    ids=["what is not known", "what is in another order"],
)
def test_ways_around_each_of_many_steps_are_not_walked_one_by_one(step, x, operators):
    assert [name for name, _ in found(repeated(step, 28), x)] == operators


@pytest.mark.slow
def test_of_very_many_operations_in_a_row_the_last_are_taken():
    ((name, (term, *_)),) = found(repeated(torch.sigmoid, 300), A)
    assert name == "total"
    assert term.count("sigmoid") == 64


COSINES = {
    "a row, over rows": lambda a, b: F.cosine_similarity(a, b[:1], dim=0),
    "a vector": lambda a, b: F.cosine_similarity(a, b[0], dim=1),
    "another type": lambda a, b: F.cosine_similarity(a, (b * 300).half(), dim=1),
}


@pytest.mark.slow
def test_cosines_of_tensors_that_differ_are_what_they_were():
    found_in_all([lambda _, a, b, f=f: f(a, b) for f in COSINES.values()], A, B)


def test_a_loss_of_few_long_rows_stays_as_it_is():
    few = A.reshape(30, 2560), B.reshape(30, 2560)
    assert found(lambda _, a, b: F.cosine_similarity(a, b, dim=1).mean(), *few) == []


@pytest.mark.slow  # traces models; norms are recognised in the tests above
def test_a_factor_of_what_is_taken_away_or_added_counts():
    def taken(_, x):
        return torch.ops.aten.sub.Scalar(x, 2, 3).abs().mean()

    assert [name for name, _ in found(taken, A)] == ["total"]

    def added(_, x):
        return x / torch.ops.aten.add.Scalar((x * x).mean(1, keepdim=True), 1, 3).sqrt()

    program = export(Reference(added), (FLAT,), strict=False).run_decompositions({})
    keep_norms(program.graph)  # further than this torch itself cannot take it
    torch.testing.assert_close(program.module()(FLAT), added(None, FLAT))


NOTHING = {
    "layer": lambda x: F.layer_norm(x, (0,)),
    "groups": lambda x: F.group_norm(x, 2),
    "l1": lambda x: x / x.abs().mean(2, keepdim=True),
}


@pytest.mark.slow
def test_norms_over_nothing_stay_as_they_are():
    norms = [lambda _, x, norm=norm: norm(x.reshape(40, 30, 0)) for norm in NOTHING.values()]
    assert found_in_all(norms, FLAT[:, :0]) == []


@pytest.mark.slow  # traces models; what only looks like a norm is in another test
def test_norms_and_sums_of_what_has_no_dimension_stay_as_they_are():
    def of_a_mean(_, x):
        mean = x.mean()
        return mean / mean.abs().mean(0, keepdim=True), mean.abs().sum(0).mean()

    assert found(of_a_mean, FLAT) == []


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Conv2d(16, 16, 3))

    def forward(self, x, y):
        return F.mse_loss(self.layers(x), y)


@pytest.mark.slow
def test_what_a_convolution_lays_out_as_it_likes_is_summed_in_order():
    inputs = torch.randn(4, 8, 40, 40), torch.randn(4, 16, 36, 36)
    code = compile_model(Convolved().eval(), inputs, settings(WHOLE)).code
    (summed,) = re.findall(r"total\.default\((\w+),", code)
    shape, stride = inputs[1].shape, inputs[1].stride()
    layout = re.escape(f"{tuple(shape)}, {stride}")
    assert re.search(rf"{summed} = empty_strided_\w+\({layout}", code)


SEQUENCE = torch.randn(4, 5, 6)
LAYERS = {
    "lstm": nn.LSTM(6, 8),
    "lstm, both ways, in layers, batch first": nn.LSTM(
        6, 8, num_layers=3, bidirectional=True, batch_first=True
    ),
    "lstm without biases": nn.LSTM(6, 8, bias=False),
    "gru": nn.GRU(6, 8, num_layers=2),
    "gru, both ways": nn.GRU(6, 8, bidirectional=True),
    "gru without biases": nn.GRU(6, 8, bias=False, batch_first=True),
    "tanh": nn.RNN(6, 8, bidirectional=True),
    "relu": nn.RNN(6, 8, num_layers=2, nonlinearity="relu"),
}


def run(model, x):
    """What a layer gives for each step, and its last states, in one tensor."""
    out, last = model.layer(x)
    flat = [one.flatten() for one in (out, *(last if isinstance(last, tuple) else (last,)))]
    return torch.cat(flat)


# One of each kind, the hardest; to take their graphs apart needs seconds.
FEW = ("lstm, both ways, in layers, batch first", "gru", "tanh", "relu")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FEW else [pytest.mark.slow]) for n in LAYERS]
)
def test_recurrent_layers_stay_whole_layer_by_layer(name):
    layer = LAYERS[name]
    calls = found(run, SEQUENCE, layer=layer)
    kind = "lstm" if isinstance(layer, nn.LSTM) else "gru" if isinstance(layer, nn.GRU) else name
    assert calls == [("recurrence", [kind])] * layer.num_layers


@pytest.mark.slow
def test_first_states_that_are_given_are_the_layers():
    states = torch.randn(2, 4, 5, 8)

    def function(model, x, states):
        out, (hidden, cell) = model.layer(x, (states[0], states[1]))
        return torch.cat([out[-1], *hidden, *cell], 1)

    calls = found(function, SEQUENCE, states, layer=nn.LSTM(6, 8, 2, bidirectional=True))
    assert calls == [("recurrence", ["lstm"])] * 2


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "layer", [nn.LSTM(6, 8, proj_size=3), nn.GRU(6, 8).double()], ids=["projected", "float64"]
)
def test_a_recurrent_layer_that_no_template_does_is_unrolled(layer):
    dtype = next(layer.parameters()).dtype
    assert found(run, SEQUENCE.to(dtype), layer=layer) == []


@pytest.mark.slow  # short ones are kept whole above; `test_compiler` has those that are refused
def test_a_long_recurrence_is_compiled_where_it_is_left_whole():
    model = Reference(run, layer=nn.GRU(6, 8)).eval()
    long = torch.randn(500, 2, 6)
    with pytest.raises(UsageError, match="500 steps"):
        compile_model(model, [long], {})
    case = compile_model(model, [long], settings(WHOLE))
    assert case.code.count("torch.ops.evolve.recurrence.default(") == 1
