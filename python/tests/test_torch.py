"""Encrypted adapters in torch models."""

import copy
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensafe  # noqa: E402
import tensafe.torch  # noqa: E402
from conftest import connected, error, site, small_adapter, states, with_answers  # noqa: E402
from tiny_lm import merge  # noqa: E402


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = torch.nn.Module()
        self.self_attn.q_proj, self.self_attn.k_proj = torch.nn.Linear(64, 48), torch.nn.Linear(64, 16)
        self.mlp = torch.nn.ModuleDict({"down_proj": torch.nn.Linear(96, 64)})

    def forward(self, x):
        qk = torch.cat([self.self_attn.q_proj(x), self.self_attn.k_proj(x)], -1)
        return self.mlp["down_proj"](torch.nn.functional.pad(qk, (0, 32)))


class Model(torch.nn.Module):
    def __init__(self, layers=1):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
        for parameter in self.parameters():
            parameter.data *= 8  # the base's norms are larger than the adapter's gains

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Model()


def of_layers(*layers, name="model.layers.{}.self_attn.q_proj", d_out=48):
    return tensafe.Adapter(site(name.format(k), 4, 64, d_out, k) for k in layers)


def wrapped(*names, of):
    for name in reversed(names):
        outer = torch.nn.Module()
        setattr(outer, name, of)
        of = outer
    return of


def check_places(model, adapter, part, **options):
    """Each layer of the model gets its own site's delta, whatever part of it `attach` is given."""
    x = torch.randn(2, 64)
    with torch.no_grad():
        expected = []
        for k, layer in enumerate(model.layers):
            own = [s.delta(x.numpy()) for name, s in adapter.items() if f"layers.{k}." in name]
            expected.append(layer.self_attn.q_proj(x) + torch.from_numpy(own[0]) if own else layer.self_attn.q_proj(x))
        with tensafe.torch.attach(part, adapter, **options):
            for layer, right in zip(model.layers, expected):
                assert error(layer.self_attn.q_proj(x), right) < 1e-3
        assert not any(isinstance(module, tensafe.torch.EncryptedLinear) for module in model.modules())


@pytest.mark.parametrize("part, name", [
    (lambda m: m, "layers.{}.self_attn.q_proj"),
    (lambda m: m, "model.layers.{}.self_attn.q_proj"),  # saved with the head around it
    (lambda m: m.layers, "model.layers.{}.self_attn.q_proj"),
    (lambda m: m, "base_model.model.model.layers.{}.self_attn.q_proj"),
    (lambda m: m, "_orig_mod.layers.{}.self_attn.q_proj"),  # saved while it was compiled
    (lambda m: wrapped("module", of=m), "layers.{}.self_attn.q_proj"),
    (lambda m: wrapped("base_model", "model", of=m), "layers.{}.self_attn.q_proj"),
    (lambda m: wrapped("_orig_mod", of=m), "model.layers.{}.self_attn.q_proj"),
    (lambda m: wrapped("module", "_orig_mod", "model", of=m), "model.layers.{}.self_attn.q_proj"),
    (lambda m: wrapped("model", of=m), "layers.{}.self_attn.q_proj"),
])
def test_one_prefix_more_or_less(part, name):
    model = Model(3)
    check_places(model, of_layers(0, 1, 2, name=name), part(model))


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch has no compile")
@pytest.mark.parametrize("runs_before", [False, True])
def test_compiled_models(model, runs_before):
    adapter = small_adapter()
    x = torch.randn(2, 64)
    fast = torch.compile(model, backend="eager")
    with torch.no_grad():
        plain = fast(x) if runs_before else model(x)
        with tensafe.torch.attach(fast, adapter):
            got = fast(x)
        assert torch.equal(fast(x), plain)
        assert error(got, merge(model, adapter)(x)) < 2e-3 < error(plain, got)


def test_a_layer_that_is_compiled_or_checkpointed_is_itself():
    model = Model(2)
    adapter = of_layers(0, 1)
    whole = wrapped("model", of=model)
    inside = model.layers[1]
    model.layers[1] = wrapped("_checkpoint_wrapped_module", of=inside)
    with tensafe.torch.attach(whole, adapter):
        assert inside.self_attn.q_proj.site == "model.layers.1.self_attn.q_proj"


TWO = of_layers(0, 1)


def tied():
    model = Model(2)
    model.layers[1] = model.layers[0]
    return model


def with_another_name():
    model = Model(2)
    model.first = model.layers[0].self_attn.q_proj
    return model


def two_towers():
    return wrapped("both", of=torch.nn.ModuleDict({"text": Model(2), "image": Model(2)}))


@pytest.mark.parametrize("model, adapter, words", [
    (Layer, TWO, "two sites are one module: 'model.layers.0.self_attn.q_proj' and 'model.layers.1.self_attn.q_proj' are "
                 "'self_attn.q_proj'"),
    (lambda: Model(2), of_layers(0, name="self_attn.q_proj"),
     "'self_attn.q_proj' is several modules of the model: 'layers.0.self_attn.q_proj', 'layers.1.self_attn.q_proj'"),
    (two_towers, of_layers(0, 1, name="layers.{}.self_attn.q_proj"),
     "'layers.0.self_attn.q_proj' is several modules of the model: 'both.text.layers.0"),
    (lambda: Model(1), TWO, "'model.layers.1.self_attn.q_proj' is no module of the model, 1 of 2 are: partial=True"),
    (lambda: Model(1), of_layers(3), "'model.layers.3.self_attn.q_proj' is no module of the model$"),
    (tied, TWO, "two sites are one module: 'model.layers.0.self_attn.q_proj' and 'model.layers.1.self_attn.q_proj'"),
    (with_another_name, TWO, "several names, 'layers.0.self_attn.q_proj', 'first', exp"),
    (lambda: wrapped("a", of=Model(1)), tensafe.Adapter([site("layers.0.self_attn.q_proj"), site("b.a.layers.0.mlp")]),
     "'b.a.layers.0.mlp' and 'layers.0.self_attn.q_proj' are modules by different prefixes"),
    (Layer, of_layers(0, name="self_attn"), "got a .*Module'>, expected a torch.nn.Linear or"),
    (lambda: wrapped("a", of=torch.nn.MultiheadAttention(64, 4)), tensafe.Adapter(site("a.out_proj", d_out=64)),
     "got a layer of a .*MultiheadAttention'>, which may not call it"),
    (lambda: wrapped("a", of=torch.nn.TransformerEncoderLayer(64, 4)), tensafe.Adapter(site("a.linear1", d_out=2048)),
     "got a layer of a .*TransformerEncoderLayer'>, which may not"),
])
def test_sites_that_are_not_each_one_module(model, adapter, words):
    model = model()
    before = dict(model.named_modules())
    with pytest.raises(tensafe.ParameterError, match=words):
        tensafe.torch.attach(model, adapter)
    assert dict(model.named_modules()) == before


def test_part_of_an_adapter():
    model = Model(2)
    check_places(model, of_layers(0, 1, 2, 7), model, partial=True)
    check_places(model, of_layers(1, 2), wrapped("model", of=model), partial=True)
    session = connected(of_layers(0, 1, 2))
    check_places(model, of_layers(0, 1), model, partial=True)
    with tensafe.torch.attach(model, session, partial=True):
        assert model.layers[1].self_attn.q_proj.site == "model.layers.1.self_attn.q_proj"
    for part, adapter in ((Layer(), TWO), (model, of_layers(8, 9))):  # nor is it a guess, or nothing
        with pytest.raises(tensafe.ParameterError, match="two sites are one module|is no module"):
            tensafe.torch.attach(part, adapter, partial=True)


def test_sites_that_the_server_does_not_keep(model):
    adapter = small_adapter()
    options = {"protect": lambda site: "q_proj" not in site.name}
    for given, more in ((adapter, options), (connected(adapter, **options), {})):
        with pytest.raises(tensafe.ParameterError, match="got sites in the clear, 'layers.0.self_attn.q_proj', exp"):
            tensafe.torch.attach(model, given, **more)
        with tensafe.torch.attach(model, given, partial=True, **more):
            assert isinstance(model.layers[0].self_attn.q_proj, torch.nn.Linear)
            assert not isinstance(model.layers[0].self_attn.k_proj, torch.nn.Linear)


def test_detached_in_any_order():
    model = Model(2)
    q = [layer.self_attn.q_proj for layer in model.layers]
    first, second = (tensafe.torch.attach(model, of_layers(k)) for k in range(2))
    with pytest.raises(tensafe.ParameterError, match="got a layer with an encrypted adapter, not detached"):
        tensafe.torch.attach(model, of_layers(1))
    first.detach()
    assert model.layers[0].self_attn.q_proj is q[0] and model.layers[1].self_attn.q_proj is not q[1]
    third = tensafe.torch.attach(model, of_layers(0))
    first.detach()  # a second time: nothing
    second.detach()
    assert model.layers[0].self_attn.q_proj is not q[0] and model.layers[1].self_attn.q_proj is q[1]
    third.detach()
    both = tensafe.torch.attach(model, TWO)
    model.layers[0].self_attn.q_proj = other = torch.nn.Linear(64, 48)
    with pytest.raises(tensafe.ParameterError, match="'model.layers.0.self_attn.q_proj': got another layer"):
        both.detach()
    assert [layer.self_attn.q_proj for layer in model.layers] == [other, q[1]]


def of_gain(gain):
    return tensafe.Adapter(tensafe.Site("layers.0.self_attn.q_proj", np.eye(1, 64), np.eye(48, 1) * gain))


@pytest.mark.parametrize("dtype, times", [(torch.float32, 1024), (torch.bfloat16, 1024), (torch.float16, 1)])
def test_gains_are_bounded_by_the_norms_of_the_layers(model, dtype, times):
    layer = model.to(dtype).layers[0].self_attn.q_proj
    with torch.no_grad():
        norm = layer.weight.double().norm().item() * times
    long_a = tensafe.Site("layers.0.self_attn.q_proj", np.eye(1, 64) * 1e9, np.eye(48, 1), norm / 9e8)
    for adapter in (of_gain(2.0**19), of_gain(1.01 * norm), connected(of_gain(1.01 * norm)), tensafe.Adapter(long_a)):
        with pytest.raises(tensafe.ParameterError, match="q_proj': got a gain of .*, expected at most .*, the base layer's n"):
            tensafe.torch.attach(model, adapter)
        assert model.layers[0].self_attn.q_proj is layer
        for norms in ({}, {"layers.0.self_attn.q_proj": 2.0**20}):
            tensafe.torch.attach(model, adapter, base_norms=norms).detach()
    tensafe.torch.attach(model, of_gain(0.99 * norm)).detach()
    with pytest.raises(tensafe.ParameterError, match="expected at most 1, the base layer's norm"):
        tensafe.torch.attach(model, of_gain(2), base_norms={"layers.0.self_attn.q_proj": 1})


@pytest.mark.parametrize("weight", [torch.zeros(64 * 48 // 2, 1, dtype=torch.uint8), torch.zeros(48, 64, dtype=torch.int8),
                                    torch.zeros(48 * 64 // 4, 1, dtype=torch.bfloat16), torch.zeros(48, 64, device="meta")])
def test_weights_whose_norm_is_not_known(model, weight):
    model.layers[0].self_attn.q_proj.weight = torch.nn.Parameter(weight, requires_grad=False)
    with pytest.warns(RuntimeWarning, match="'layers.0.self_attn.q_proj': the base layer's weights are quantised or"):
        tensafe.torch.attach(model, of_gain(2.0**19)).detach()


class HalfLinear(torch.nn.Linear):
    def forward(self, x):  # which torch 1.13 does not have
        is_half = x.dtype == torch.float16
        return super().forward(x) if not is_half else torch.nn.functional.linear(
            x.float(), self.weight.float(), self.bias.float()).half()


def test_deltas_beyond_float16_are_counted_and_told_at_the_end(model):
    model.layers[0].self_attn.q_proj = HalfLinear(64, 48)
    adapter = of_gain(2.0**19)
    x = torch.zeros(2, 64).half()
    x[0, 0] = 1
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        attached = tensafe.torch.attach(model.half(), adapter, base_norms={})
        assert model.layers[0].self_attn.q_proj(x).isfinite().all() and attached.session.clamped_deltas == 1
        model.bfloat16().layers[0].self_attn.q_proj(x.bfloat16())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model.float().layers[0].self_attn.q_proj(x.float()).dtype == torch.bfloat16
    assert attached.session.clamped_deltas == 1  # only float16 ends there
    with pytest.warns(RuntimeWarning, match="1 entries of deltas were beyond"):
        attached.detach()


def factors_of(adapter, value=1.5):
    return {name: torch.full((each.d_out,), value) for name, each in adapter.items()}


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1024), (torch.bfloat16, 1024), (torch.float16, 16)])
def test_row_factors_are_checked(model, dtype, most):
    q = "layers.0.self_attn.q_proj"
    layer = model.to(dtype).layers[0].self_attn.q_proj
    adapter = small_adapter()
    good = factors_of(adapter, most)
    tensafe.torch.attach(model, adapter, row_factors=good).detach()
    tensafe.torch.attach(model, adapter, row_factors={name: list(row) for name, row in good.items()}).detach()
    for value in (float("nan"), float("inf"), 1.001 * most, -1.001 * most, 1e300):
        row = good[q].double()
        row[3] = value
        with pytest.raises(tensafe.ParameterError, match=f"row_factors of site '{q}': output 3: got .*, expected a number "
                           f"from -{most} to {most}, of DoRA near 1"):
            tensafe.torch.attach(model, adapter, row_factors={**good, q: row})
    for bad, error_type, words in (
            ({**good, q: good[q][:47]}, tensafe.ShapeError, r"got shape \[47\], expected \[48\], a number for each"),
            ({**good, q: good[q][:, None]}, tensafe.ShapeError, r"got shape \[48, 1\], expected"),
            ({**good, q: "1" * 48}, TypeError, "'layers.0.self_attn.q_proj': got str, expected real numbers"),
            ({**good, "x": good[q]}, tensafe.ParameterError, "row_factors: 'x': got no site of the adapter, expected"),
            ({q: good[q]}, tensafe.ParameterError, "row_factors: .*k_proj', .*: got no factors, expected f"),
            ([good], TypeError, "row_factors: got list, expected the path of a file, or a mapping")):
        with pytest.raises(error_type, match=words):
            tensafe.torch.attach(model, adapter, row_factors=bad)
        assert model.layers[0].self_attn.q_proj is layer
    some = {q: good[q], "layers.7.self_attn.q_proj": good[q]}
    part = tensafe.Adapter([adapter[q], site("layers.9.self_attn.q_proj", d_out=48)])
    tensafe.torch.attach(model, part, partial=True, row_factors=some).detach()


def test_files_of_row_factors_need_safetensors(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(tensafe.UnsupportedError, match="need the package safetensors, .*: pip install safetensors"):
        tensafe.torch.attach(model, small_adapter(), row_factors="row_factors.safetensors")


def test_row_factors_with_a_session(model):
    adapter = small_adapter()
    x = torch.randn(2, 3, 64)
    factors = {name: torch.randn(each.d_out) for name, each in adapter.items()}
    scaled = copy.deepcopy(model)
    for name, row in factors.items():
        scaled.get_submodule(name).weight.data *= row[:, None]
    merge(scaled, adapter)
    with torch.no_grad(), tensafe.torch.attach(model, connected(adapter), row_factors=factors):
        factors["layers.0.self_attn.q_proj"] *= 2  # which changes nothing
        assert error(model(x), scaled(x)) < 2e-3
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model.layers[0].self_attn.q_proj(x).dtype == torch.bfloat16


def test_row_factors_round_once(model):
    layer = model.bfloat16().layers[0].self_attn.q_proj
    adapter = tensafe.Adapter(tensafe.Site("layers.0.self_attn.q_proj", np.eye(1, 64), np.zeros((48, 1))))
    x, factors = torch.randn(200, 64).bfloat16(), torch.rand(48) * 2
    with torch.no_grad(), tensafe.torch.attach(model, adapter, row_factors={"layers.0.self_attn.q_proj": factors}):
        y = layer(x)
        expected = (y + (factors - 1) * (y - layer.bias)).bfloat16()
        model.bfloat16()  # which rounds no factors
        assert torch.equal(model.layers[0].self_attn.q_proj(x), expected)


@pytest.mark.parametrize("d_out, told", [(67, True), (60, False)])
def test_row_factors_tell_a_where_they_are_many(d_out, told):
    """Of r d_in + r (r + 1) / 2 = 67 outputs whoever knows magnitudes, W and B has A by linear equations."""
    rank, d_in, scale = 2, 32, 2.0
    w, b, a = states(d_out, d_in), states(d_out, rank, seed=8), states(rank, d_in, seed=9) / 4
    m = np.linalg.norm(w, axis=1)
    factors = (m / np.linalg.norm((w + scale * b @ a).astype(np.float64), axis=1)).astype(np.float32)
    w, b = w.astype(np.float64), (factors[:, None] * scale * b).astype(np.float64) / factors[:, None] / scale
    pairs = [(i, j) for i in range(rank) for j in range(i, rank)]
    equations = np.hstack([2 * scale * (b[:, :, None] * w[:, None, :]).reshape(d_out, -1),
                           scale**2 * np.stack([b[:, i] * b[:, j] * (1 + (i < j)) for i, j in pairs], 1)])
    solved = np.linalg.lstsq(equations, (m / factors)**2 - (w**2).sum(1), rcond=None)[0]
    assert (error(solved[:rank * d_in], a.ravel()) < 1e-2) == told


def test_attached_model_is_the_merged_one(model):
    adapter = small_adapter()
    x = torch.randn(2, 3, 64)
    with torch.no_grad():
        plain = model(x)
        with tensafe.torch.attach(model, adapter, tokens_ahead=8):
            assert sum(isinstance(m, tensafe.torch.EncryptedLinear) for m in model.modules()) == 3
            got = model(x)
        assert torch.equal(model(x), plain)
        expected = merge(model, adapter)(x)
    assert error(got, expected) < 2e-3 < error(plain, expected)


def test_sites_of_one_input_share_a_request(model):
    adapter = small_adapter()
    client, answers = with_answers(adapter)
    requests = []

    def carry(request):
        requests.append(request)
        return answers.answer(request)

    with torch.no_grad(), tensafe.torch.attach(model, client.connect(carry)):
        x = torch.randn(1, 64)
        model(x)
        assert len(requests) == 2  # q and k together, down
        x += 1  # in place: other hidden states
        model(x)
        assert len(requests) == 4
        model(torch.full((1, 64), torch.nan))  # nor does NaN show in the number of requests
        assert len(requests) == 6
        with torch.inference_mode():
            model(torch.randn(1, 64))
        assert len(requests) == 8
        assert model.layers[0].self_attn.q_proj.weight.shape == (48, 64)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-3), (torch.float32, 1e-3), (torch.float16, 3e-3),
                                              (torch.bfloat16, 1e-2)])
def test_tensor_types(dtype, tolerance):
    adapter = small_adapter()
    session = connected(adapter)
    x = torch.randn(3, 2, 64).to(dtype).transpose(0, 1)
    got = session.delta("q_proj", x)
    assert got.dtype == dtype and got.shape == (2, 3, 48)
    assert error(got.double(), adapter["q_proj"].delta(x.double().numpy())) < tolerance


def test_what_was_answered_before_an_error_is_a_tensor():
    adapter = small_adapter()
    client, answers = with_answers(adapter)
    replies = iter(range(2))  # and then StopIteration
    x = torch.randn(3, 64).to(torch.bfloat16)
    with pytest.raises(StopIteration) as caught:
        client.connect(lambda request: next(replies) * b"" + answers.answer(request)).delta("q_proj", x)
    partial = caught.value.partial
    assert partial.dtype == torch.bfloat16 and partial[2].isnan().all()
    assert error(partial[:2].double(), adapter["q_proj"].delta(x[:2].double().numpy())) < 1e-2


def test_refusals(model):
    adapter = small_adapter()
    session = connected(adapter)
    with pytest.raises(TypeError, match="needs a gradient"):
        session.delta("q_proj", torch.randn(64, requires_grad=True))
    with pytest.raises(TypeError, match="on the CPU"):
        session.delta("q_proj", torch.empty(64, device="meta"))
    with pytest.raises(TypeError, match="expected a tensafe.Session"):
        tensafe.torch.attach(model, {"q": 1})
    attached = tensafe.torch.attach(model, session)
    with pytest.raises(tensafe.UnsupportedError, match="torch.no_grad"):
        model(torch.randn(1, 64))
    attached.detach()
    model.layers[0].self_attn.k_proj = torch.nn.Linear(64, 17)
    with pytest.raises(tensafe.ShapeError, match="got a layer 64 -> 17, expected 64 -> 16"):
        tensafe.torch.attach(model, session)
    del model.layers[0].self_attn.k_proj
    with pytest.raises(tensafe.ParameterError, match="k_proj' is no module"):
        tensafe.torch.attach(model, session)
    assert isinstance(model.layers[0].self_attn.q_proj, torch.nn.Linear)
