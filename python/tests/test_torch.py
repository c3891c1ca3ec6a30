"""Encrypted adapters in torch models."""

import pytest

torch = pytest.importorskip("torch")

import tensafe  # noqa: E402
import tensafe.torch  # noqa: E402
from conftest import connected, error, small_adapter, with_answers  # noqa: E402
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
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer()])

    def forward(self, x):
        return self.layers[0](x)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Model()


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
