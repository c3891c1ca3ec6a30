"""Speculative decoding with an encrypted adapter: the base model drafts, as transformers' assistant."""

import copy
import os

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # models are made of configurations: nothing is fetched
torch = pytest.importorskip("torch", minversion="2.4")  # of transformers
transformers = pytest.importorskip("transformers", reason="python/tests/requirements.txt is not installed")

import tensafe  # noqa: E402
import tensafe.torch  # noqa: E402

torch.set_num_threads(1)  # of tiny models, where threads wait for one another

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")

PROMPT = torch.tensor([[5, 17, 20, 3, 28, 9]])
GROUPS = 4  # two layers: q and v of one input, down of another


@pytest.fixture
def model():
    torch.manual_seed(3)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, pad_token_id=0, bos_token_id=1,
        eos_token_id=None)).eval().double()


@pytest.fixture
def adapter():
    random = np.random.default_rng(2)
    return tensafe.Adapter(
        tensafe.Site(f"model.layers.{layer}.{name}", random.normal(size=(4, d_in)) / 8, random.normal(size=(d_out, 4)) / 4)
        for layer in range(2)
        for name, d_in, d_out in (("self_attn.q_proj", 48, 48), ("self_attn.v_proj", 48, 24), ("mlp.down_proj", 64, 48)))


@pytest.fixture
def calls(monkeypatch, adapter):
    """The rows of each call of a session, which is one round trip; it is answered in the clear."""
    rows = []

    def deltas(self, site, x, zeros_for_nan):
        rows.append(x.shape[:-1].numel())
        names = next(names for names in self._sites.groups if site in names)
        return {name: torch.from_numpy(adapter[name].delta(x.numpy())) for name in names}

    monkeypatch.setattr(tensafe.Session, "deltas", deltas)
    return rows


def written(model, **options):
    return model.generate(PROMPT, **{"max_new_tokens": 16, "do_sample": False, **options})[0].tolist()


def passes(calls):
    assert len(calls) % GROUPS == 0
    rows = calls[::GROUPS]
    assert calls == [each for each in rows for _ in range(GROUPS)]
    calls.clear()
    return rows


def test_text_with_drafts_under_encryption(model, adapter):
    with tensafe.torch.attach(model, adapter, tokens_ahead=8) as attached:
        text = written(model, max_new_tokens=8)
        assert written(model, max_new_tokens=8, assistant_model=attached.base_model(2)) == text
    assert written(model, max_new_tokens=8) != text


@pytest.mark.parametrize("lookup", [False, True])
def test_text_with_drafts_is_the_text_without_in_one_round_trip_a_pass(model, adapter, calls, lookup):
    base_text = written(model)
    with tensafe.torch.attach(model, adapter) as attached:
        text = written(model)
        assert text != base_text and passes(calls) == [6] + [1] * 15
        for drafts in range(1, 5):
            base = attached.base_model(drafts, lookup=lookup)
            assert written(model, prompt_lookup_num_tokens=drafts) == text
            calls.clear()
            for options in ({}, {"do_sample": True, "top_k": 1})[:drafts]:  # the rule of sampling, too
                assert written(model, assistant_model=base, **options) == text
                rows = passes(calls)
                assert rows[0] == 6 + drafts
                # As many where the text may be no longer, or the server would see how many of the last were right.
                assert set(rows[1:-1]) == {drafts + 1} and rows[-1] in (1, drafts + 1)
                assert 16 / (drafts + 1) < len(rows) < 16  # some were accepted, some rejected
        assert written(base) == base_text and passes(calls) == []


def test_sampled_text_has_the_distribution_of_the_adapted_model(model, adapter, calls):
    """Of two tokens after a first one, drafted by the base or as what followed earlier."""
    prompt = torch.tensor([[4, 5, 6, 7, 4, 5, 6, 9, 4, 5, 6]])
    with torch.no_grad(), tensafe.torch.attach(model, adapter) as attached:
        options = dict(max_new_tokens=3, do_sample=True, temperature=0.8, top_k=0)
        torch.manual_seed(1)
        plain = model.generate(prompt, num_return_sequences=1000, **options)[:, 11:]
        base = attached.base_model(2)
        drafted = torch.cat([model.generate(prompt, assistant_model=base, **options)[:, 11:] for _ in range(150)])
    for position in range(3):
        expected, got = (torch.bincount(texts[:, position], minlength=32) / len(texts) for texts in (plain, drafted))
        assert (expected - got).abs().sum() / 2 < 0.2, position


def test_drafts_are_what_followed_earlier_or_the_base_s_own(model, adapter, calls):
    with tensafe.torch.attach(model, adapter) as attached:
        base, config = attached.base_model(4), copy.deepcopy(model.generation_config)
    config.update(is_assistant=True, return_dict_in_generate=True, output_scores=True, do_sample=True)
    for row, expected in (([7, 4, 5, 6, 7, 8, 4, 5, 6, 9, 4, 5, 6], [9, 4, 5, 6]),  # the last time
                          ([3, 8, 8, 8, 8], [8, 8, 8, 8]),  # a draft that follows drafts
                          ([4, 5, 6, 9, 5, 6], None), ([4, 5], None)):  # two tokens are too few
        ids = torch.tensor([row])
        with torch.no_grad():
            cache = base(ids[:, :-1]).cache
        got = base.generate(input_ids=ids, cache=cache, max_new_tokens=4, generation_config=config)
        scores = torch.stack(got.scores, 1).softmax(-1)  # what the rule of sampling divides by
        drawn = scores[0, range(4), got.sequences[0, -4:]]
        assert got.sequences[0, :-4].tolist() == row and scores.shape == (1, 4, 32)
        assert (expected is not None) == drawn.eq(1).all()
        assert expected in (None, got.sequences[0, -4:].tolist())


def test_the_base_does_not_end_its_drafts_early(model, adapter, calls):
    with tensafe.torch.attach(model, adapter) as attached:
        text = written(model)
        base = attached.base_model(4, lookup=False)
        drafts = base.generate(torch.tensor([text[:8]]), max_new_tokens=4, do_sample=False)[0, 8:].tolist()
        end = next(token for token in drafts[:3] if token not in text[8:10])
        calls.clear()
        got = model.generate(torch.tensor([text[:8]]), max_new_tokens=10, do_sample=False, assistant_model=base,
                             eos_token_id=end)
        assert got[0, :10].tolist() == text[:10] and passes(calls)[0] == 8 + 4


def test_the_base_shares_all_weights(model, adapter):
    tensors = {name: tensor.data_ptr() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    base_text = written(model)
    attached = tensafe.torch.attach(model, adapter)
    base = attached.base_model(2)
    assert {name: tensor.data_ptr() for name, tensor in [*base.named_parameters(), *base.named_buffers()]} == tensors
    assert not any(isinstance(module, tensafe.torch.EncryptedLinear) for module in base.modules())
    assert model.generation_config.num_assistant_tokens != 2  # nor is the model changed
    text = written(model)
    attached.detach()
    assert written(base) == base_text == written(attached.base_model(3)) != text


def test_the_number_of_drafts_is_the_best_for_the_link(model, adapter, monkeypatch):
    asked = {}
    with tensafe.torch.attach(model, adapter) as attached:
        assert attached.base_model().generation_config.num_assistant_tokens == 0  # in process nothing is to be saved
        assert attached.base_model(round_trip=1).generation_config.num_assistant_tokens == 4
        monkeypatch.setattr(tensafe.Session, "round_trip", 2)
        assert attached.base_model().generation_config.num_assistant_tokens == 4
        assert attached.base_model(acceptance=0).generation_config.num_assistant_tokens == 0
        assert attached.base_model(round_trip=0).generation_config.num_assistant_tokens == 0
        monkeypatch.setattr(tensafe.torch, "best_drafts", lambda **link: asked.update(link) or 3)
        assert attached.base_model(rate=1e6).generation_config.num_assistant_tokens == 3
    cost = tensafe.estimate(adapter, tokens_ahead=38)
    assert asked.pop("forward") > 0 and asked == {
        "groups": GROUPS, "rate": 1e6, "round_trip": 2, "budget": None,
        "bytes_a_position": (cost["bytes_up"] + cost["bytes_down"]) / 38}


def test_models_that_cannot_take_drafts(model, adapter):
    with tensafe.torch.attach(model.model, adapter) as attached:
        with pytest.raises(tensafe.ParameterError, match="got a LlamaModel, expected a model .* that can generate"):
            attached.base_model(2)
    with tensafe.torch.attach(model, adapter) as attached:
        for bad, error in ((-1, tensafe.ParameterError), (1.5, TypeError)):
            with pytest.raises(error, match="drafts: got"):
                attached.base_model(bad)
        model.model._is_stateful = True
        with pytest.raises(tensafe.UnsupportedError, match="recurrent states .linear attention.*generate without drafts"):
            attached.base_model(2)


def test_a_real_model_with_linear_attention_is_refused():
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=8, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=8,
        shared_expert_intermediate_size=8, layer_types=["linear_attention", "full_attention"]))
    q = tensafe.Site("model.layers.1.self_attn.q_proj", np.eye(1, 32), np.eye(64, 1))
    with tensafe.torch.attach(model, tensafe.Adapter(q), base_norms={}) as attached:
        with pytest.raises(tensafe.UnsupportedError, match="linear attention"):
            attached.base_model(2)


def test_compiled_models(model, adapter):
    with tensafe.torch.attach(torch.compile(model, backend="eager"), adapter) as attached:
        text = written(model)
        assert written(model, assistant_model=attached.base_model(2)) == text
