"""PEFT as the judge: what the library saves is loaded here, and must compute what the library computes."""

import copy
import dataclasses
import json
import os
import pathlib
import random
import re

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # models are made of configurations: nothing is fetched
torch = pytest.importorskip("torch", minversion="2.4")  # of transformers
MISSING = "python/tests/requirements.txt is not installed"
peft = pytest.importorskip("peft", reason=MISSING)
transformers = pytest.importorskip("transformers", reason=MISSING)

import safetensors.torch  # noqa: E402

from peft.tuners.lora.layer import ParamWrapper  # noqa: E402
from peft.utils.other import get_pattern_key  # noqa: E402

import tensafe  # noqa: E402
import tensafe.dora  # noqa: E402
import tensafe.torch  # noqa: E402
from conftest import error  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore:::transformers"), pytest.mark.filterwarnings("ignore:::peft")]

SMALL = dict(vocab_size=96, hidden_size=48, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
IDS = torch.tensor([[5, 17, 60, 3, 88]])


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **SMALL))


def qwen2():  # q, k and v have a bias
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(num_hidden_layers=2, **SMALL))


def phi3():  # q, k and v are one layer, gate and up another
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(num_hidden_layers=2, **SMALL))


def gpt2():  # its layers are Conv1D, whose weight is [in, out]
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=96, n_embd=48, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2, bos_token_id=1,
        eos_token_id=2))


def t5():  # attention in the decoder reads q from one place, k and v from another
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=96, d_model=48, d_kv=12, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=4,
        decoder_start_token_id=0))


def mixtral():  # its experts are one parameter of three dimensions
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(num_hidden_layers=1, num_local_experts=4, **SMALL))


def gpt_oss():  # its experts are [in, out]
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        num_hidden_layers=1, num_local_experts=3, num_experts_per_tok=2, head_dim=12, **SMALL))


def nemotron():  # its experts have no gates
    return transformers.NemotronHForCausalLM(transformers.NemotronHConfig(
        hybrid_override_pattern="E", n_routed_experts=4, moe_intermediate_size=32, num_experts_per_tok=2,
        moe_shared_expert_intermediate_size=16, **SMALL))


def classifier():
    return transformers.LlamaForSequenceClassification(transformers.LlamaConfig(num_hidden_layers=1, **SMALL))


class Convolution(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(4, 8, 3))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(48, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


def saved(make, folder, dtype=torch.float32, **options):
    """A base model; PEFT saves an adapter of random numbers for it in the folder."""
    torch.manual_seed(1)
    base = make().eval()
    model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(**{"r": 4, "lora_alpha": 8, **options}))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.to(dtype).save_pretrained(folder)
    return base.double()


def judge_of(base, folder):
    return peft.PeftModel.from_pretrained(copy.deepcopy(base).float(), folder).double().eval()  # MiCA wants floats


def check_sites(adapter, judge):
    """Every layer's delta is PEFT's, in the clear and to the precision of double."""
    layers = {name.removeprefix("base_model.model."): layer for name, layer in judge.named_modules()
              if isinstance(layer, peft.tuners.lora.LoraLayer)}
    experts = {name: layers.pop(name) for name, layer in list(layers.items()) if isinstance(layer, ParamWrapper)}
    expected = {}
    for name, wrapper in experts.items():
        module = name.replace(".base_layer", "")
        several = any(other != name and other.replace(".base_layer", "") == module for other in experts)
        with torch.no_grad():
            deltas = wrapper.get_delta_weight("default")
        stem = f"{module}.{wrapper.parameter_name}" if several else module
        for e, delta in enumerate(deltas if deltas.dim() == 3 else [deltas]):
            transposed = getattr(wrapper.get_base_layer(), "is_transposed", False)
            expected[f"{stem}.{e}" if deltas.dim() == 3 else stem] = delta.T if transposed else delta
    assert sorted(adapter) == sorted([*layers, *expected])
    for name, delta in expected.items():
        x = torch.randn(3, adapter[name].d_in, dtype=torch.float64)
        assert error(adapter[name].delta(x.numpy()), x @ delta.T) < 1e-9, name
    for name, layer in layers.items():
        x = torch.randn(3, adapter[name].d_in, dtype=torch.float64)
        with torch.no_grad():
            assert error(adapter[name].delta(x.numpy()), layer(x) - layer.base_layer(x)) < 1e-9, name


def logits(model):
    return model(IDS, **({"decoder_input_ids": IDS[:, :3]} if model.config.is_encoder_decoder else {})).logits


def check_logits(base, adapter, judge):
    """The encrypted adapter in the base model writes PEFT's logits, and the base model alone does not."""
    with torch.no_grad():
        expected, plain = logits(judge), logits(base)
        with tensafe.torch.attach(base, adapter, base_norms={}, tokens_ahead=8):  # random ones may pass the base's norms
            got = logits(base)
    assert error(got, expected) < 3e-3 < 0.1 < error(plain, expected)


ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LOADED = {
    "plain": (llama, dict(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", lora_dropout=0.1)),
    "every linear layer": (llama, dict(target_modules="all-linear")),
    "ranks and alphas by pattern": (llama, dict(
        target_modules=[*ATTENTION, "down_proj"], rank_pattern={"model.layers.0.self_attn.q_proj": 2, "q_proj": 6},
        alpha_pattern={"self_attn.k_proj": 3, "layers.1.mlp.down_proj": 24, "down_proj": 5})),
    "rank-stabilised": (qwen2, dict(target_modules=ATTENTION, use_rslora=True)),
    "rank-stabilised by pattern": (qwen2, dict(target_modules=["k_proj", "up_proj"], use_rslora=True,
                                               rank_pattern={"up_proj": 7}, alpha_pattern={"layers.1.mlp.up_proj": 1})),
    "targets by expression": (llama, dict(target_modules=r".*\.layers\.[1-9]\..*(q|gate)_proj")),
    "layers by number": (llama, dict(target_modules=ATTENTION, layers_to_transform=[1], layers_pattern="layers")),
    "layers left out": (llama, dict(target_modules="all-linear",
                                    exclude_modules=["down_proj", "layers.0.mlp.up_proj"])),
    "fused projections": (phi3, dict(target_modules=["qkv_proj", "gate_up_proj", "down_proj"])),
    "fused projections by pattern": (phi3, dict(target_modules="all-linear", rank_pattern={"qkv_proj": 9})),
    "encoder and decoder": (t5, dict(target_modules=["q", "k", "v", "o", "wi"])),
    "layers whose weight is [in, out]": (gpt2, dict(target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "orthogonal start": (llama, dict(target_modules=["q_proj"], init_lora_weights="orthogonal")),
    "MiCA": (llama, dict(target_modules=["q_proj"], init_lora_weights="mica")),
    "Gaussian start": (llama, dict(target_modules=["q_proj"], init_lora_weights="Gaussian")),
    "no biases to train": (llama, dict(target_modules=["q_proj"], bias="lora_only")),
    "the last layer, whose base PEFT saves as well": (llama, dict(target_modules=["lm_head", "q_proj"])),
    "an anchored pattern": (llama, dict(target_modules=["q_proj"], alpha_pattern={
        r"^model\.layers\.0\.self_attn.q_proj": 64})),
    "alternatives": (llama, dict(target_modules=["q_proj", "v_proj"], alpha_pattern={"(q|v)_proj": 64})),
    "dots in patterns": (llama, dict(target_modules=["q_proj"], alpha_pattern={"self.attn.q_proj": 64})),
    "classes and repetitions": (llama, dict(
        target_modules=ATTENTION, rank_pattern={r"layers\.[1-9]\d*\.self_attn\.(?:k|v)_proj": 7},
        alpha_pattern={r".*\.0\..+": 3, r"[qk]_proj": 5})),
}
EXPERTS = {
    "one parameter": (mixtral, dict(target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj"])),
    "by its name alone": (mixtral, dict(target_modules=["q_proj"], target_parameters=["down_proj"])),
    "two parameters": (mixtral, dict(
        target_modules=["o_proj"], target_parameters=["mlp.experts.down_proj", "mlp.experts.gate_up_proj"],
        rank_pattern={"experts.down_proj": 2}, alpha_pattern={r"experts\.gate.*": 3}, use_rslora=True)),
    "transposed": (gpt_oss, dict(target_modules=["q_proj"],
                                 target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "without gates": (nemotron, dict(target_modules=[], target_parameters=["experts.up_proj", "experts.down_proj"])),
    "of a linear layer": (llama, dict(target_modules=["v_proj"], target_parameters=["q_proj.weight"])),
}


@pytest.mark.parametrize("case", LOADED)
def test_loaded_and_attached_as_peft_does(case, tmp_path):
    make, options = LOADED[case]
    base = saved(make, tmp_path, **options)
    adapter, judge = tensafe.load_peft(tmp_path), judge_of(base, tmp_path)
    check_sites(adapter, judge)
    check_logits(base, adapter, judge)


@pytest.mark.parametrize("case", EXPERTS)
def test_experts_are_loaded_as_peft_computes_them(case, tmp_path):
    make, options = EXPERTS[case]
    base = saved(make, tmp_path, **options)
    check_sites(tensafe.load_peft(tmp_path), judge_of(base, tmp_path))


def test_base_copies_are_left_out_with_a_note(tmp_path):
    saved(llama, tmp_path, target_modules=["lm_head", "q_proj"])
    [note] = tensafe.load_peft(tmp_path).notes
    assert "left out as a copy of the base model's own" in note and "lm_head.base_layer.weight" in note


def test_what_is_missing_of_the_scale_is_peft_s_own(tmp_path):
    base = saved(llama, tmp_path, target_modules=["q_proj"], r=8, lora_alpha=8)
    file = tmp_path / "adapter_config.json"
    config = json.loads(file.read_text())
    del config["r"], config["lora_alpha"], config["use_rslora"]
    file.write_text(json.dumps(config))
    check_sites(tensafe.load_peft(tmp_path), judge_of(base, tmp_path))


def test_random_patterns_fit_what_peft_fits(tmp_path):
    """The library's own matcher is the judge, of patterns that it takes; others are refused, and none is ignored."""
    names = ["a", "b.a", "ab.c", "a0.b.c", "b.b", "abc", "a.b.0.c", "c.0", "層.a", "a.a.a.a", "ab.ab", "_.b"]
    safetensors.torch.save_file({f"base_model.model.{name}.lora_{m}.weight": torch.ones(1, 1) for name in names
                                 for m in "AB"}, tmp_path / "adapter_model.safetensors")
    draw = random.Random(5)
    parts = ["a", "b", "c", "0", "ab", ".", r"\.", "[ab]", "[^a.]", "(a|b)", "(?:b.)", "|", "*", "+", "?", "{2}", "{0,2}",
             "{,1}", "^", "$", r"\d", ".*", "(", ")", "_", "層", "+?", "[b-]", "{", "x{"]
    taken = 0
    for _ in range(3000):
        keys = ["".join(draw.choices(parts, k=draw.randrange(1, 6))) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
        alphas = {key: 2 + i for i, key in enumerate(dict.fromkeys(keys))}
        (tmp_path / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "alpha_pattern": alphas}))
        try:
            expected = {name: alphas.get(get_pattern_key(alphas, name), 1) for name in names}
            fitting = [any(re.match(rf"(.*\.)?({key})$", name) for name in names) for key in alphas]
        except re.error:
            expected, fitting = {}, [False]
        try:
            got = {name: site.scale for name, site in tensafe.load_peft(tmp_path).items()}
        except tensafe.UnsupportedError as e:  # a subset: which keys it is the C++ tests say
            assert "not supported" in str(e)
        except tensafe.FormatError as e:
            assert "fits no site" in str(e) and not all(fitting)
        else:
            assert got == expected and all(fitting), alphas
            taken += 1
    assert taken > 200


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_files_of_eight_bits(dtype, tmp_path):
    base = saved(llama, tmp_path, target_modules=["q_proj"])
    file = tmp_path / "adapter_model.safetensors"
    safetensors.torch.save_file({name: tensor.to(dtype) for name, tensor in safetensors.torch.load_file(file).items()},
                                file)
    check_sites(tensafe.load_peft(tmp_path), judge_of(base, tmp_path))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files(dtype, tmp_path):
    base = saved(llama, tmp_path, dtype, target_modules=["q_proj", "up_proj"])
    tensors = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {dtype}
    adapter, judge = tensafe.load_peft(tmp_path), judge_of(base, tmp_path)
    check_sites(adapter, judge)
    check_logits(base, adapter, judge)


def test_pissa_converted_to_lora(tmp_path):
    torch.manual_seed(1)
    base = llama().eval()
    model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(r=4, target_modules=["q_proj"],
                                                                     init_lora_weights="pissa"))
    model.save_pretrained(tmp_path / "start")
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path, path_initial_model_for_weight_conversion=str(tmp_path / "start"))
    adapter, judge = tensafe.load_peft(tmp_path), judge_of(base.double(), tmp_path)
    assert {site.rank for site in adapter.values()} == {8}  # the change and what the base lost
    check_sites(adapter, judge)
    check_logits(base, adapter, judge)


# Activated LoRA: deltas from the last invocation on.
INVOCATION = [7, 8, 7]
ACTIVATED = dict(target_modules=[*ATTENTION, "down_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=INVOCATION)
PROMPTS = torch.tensor([[0, 0, 0, 5, 7, 8, 7, 8, 7, 60], [7, 8, 7, 9, 17, 20, 21, 7, 8, 3]])  # padded; with an early one
SEEN = (PROMPTS != 0).long()
INPUTS = 2 * 3  # of two layers: of q, k and v, of o, and of down


@pytest.fixture
def activated(tmp_path):
    base = saved(llama, tmp_path, **ACTIVATED)
    base.generation_config.eos_token_id = None
    return base, tensafe.load_peft(tmp_path), judge_of(base, tmp_path)


@pytest.fixture
def positions(monkeypatch):
    """The hidden states of each call of a session."""
    rows, plain = [], tensafe.Session.deltas

    def deltas(self, site, x, **options):
        rows.append(x.shape[:-1].numel())
        return plain(self, site, x, **options)

    monkeypatch.setattr(tensafe.Session, "deltas", deltas)
    return rows


def test_activated_adapters_apply_from_the_last_invocation_on(activated, positions):
    base, adapter, judge = activated
    assert adapter.invocation_tokens == INVOCATION
    with torch.no_grad():
        plain, expected = (m(PROMPTS, attention_mask=SEEN).logits for m in (base, judge))
        with tensafe.torch.attach(base, adapter, base_norms={}, tokens_ahead=8):
            got = base(input_ids=PROMPTS, attention_mask=SEEN).logits
            assert positions == [4 + 10] * INPUTS
            positions.clear()
            none = base(PROMPTS[:, 3:5]).logits
            assert positions == []
        assert torch.equal(base(PROMPTS[:, 3:5]).logits, none)
        assert torch.equal(base(PROMPTS, attention_mask=SEEN).logits, plain)
    assert torch.equal(got[0, 3:6], plain[0, 3:6])  # not even rounded
    assert error(got[0, 6:], expected[0, 6:]) < 3e-3 < 0.1 < error(plain[0, 6:], expected[0, 6:])
    assert error(got[1], expected[1]) < 3e-3 < 0.1 < error(plain[1], expected[1])


@pytest.mark.parametrize("tokens", [[7], INVOCATION, [9, 17, 20]])
def test_activated_adapters_write_the_text_of_peft(tokens, activated, positions):
    base, adapter, judge = activated
    judge.peft_config["default"].alora_invocation_tokens = tokens
    options = dict(attention_mask=SEEN, max_new_tokens=12, do_sample=False)
    plain, expected = base.generate(PROMPTS, **options), judge.generate(input_ids=PROMPTS, **options)
    with tensafe.torch.attach(base, adapter, base_norms={}, invocation_tokens=tokens) as attached:
        got = base.generate(PROMPTS, **options)
        starts = {7: (8, 7), 9: (None, 3)}[tokens[0]] if tokens != INVOCATION else (6, 0)
        rows = [sum(10 - start for start in starts if start is not None)] + [2 - starts.count(None)] * 11
        assert positions == [each for each in rows for _ in range(INPUTS)]
        assert torch.equal(got, expected) and not torch.equal(got, plain)
        assert [torch.equal(*pair) for pair in zip(got, plain)] == [start is None for start in starts]
        for row, start in enumerate(starts):  # drafts go only so far back as the invocation
            positions.clear()
            one = dict(options, attention_mask=SEEN[row:row + 1])
            text = base.generate(PROMPTS[row:row + 1], **one, assistant_model=attached.base_model(3))
            assert torch.equal(text[0], expected[row])
            assert start is None and positions == [] or positions[0] == 10 - start + 3 and positions[INPUTS] == 4
    assert torch.equal(base.generate(PROMPTS, **options), plain) and not {"forward", "generate"} & vars(base).keys()


def test_a_prompt_before_the_invocation_stays_in_the_cache_of_the_base(activated, positions):
    base, adapter, judge = activated
    prompt = PROMPTS[:1, 3:]  # 5, 7, 8, 7, 8, 7, 60
    with torch.no_grad():
        expected = judge.generate(input_ids=prompt, max_new_tokens=6, do_sample=False)
        with tensafe.torch.attach(base, adapter, base_norms={}) as attached:
            for cached, passed in ((prompt[:, :2], prompt), (prompt[:, :2], prompt[:, 2:])):
                cache = base(cached).cache
                assert positions == []
                got = base.generate(passed, cache=cache, max_new_tokens=6, do_sample=False,
                                    attention_mask=torch.ones_like(prompt))
                assert got[0, -6:].tolist() == expected[0, -6:].tolist()
                assert positions[:INPUTS] == [4] * INPUTS
                positions.clear()

            def cut(module, args, kwargs):  # assisted generation begins with the whole text, also what is cached
                known = kwargs["cache"].get_seq_length() - int(kwargs["position_ids"][0, 0])
                return args, {**kwargs, **{name: kwargs[name][:, known:] for name in ("input_ids", "position_ids")}}

            assistant = attached.base_model(2)
            cache = assistant(prompt[:, :2]).cache
            hook = base.register_forward_pre_hook(cut, with_kwargs=True)
            got = base.generate(prompt, cache=cache, max_new_tokens=6, do_sample=False, assistant_model=assistant,
                                attention_mask=torch.ones_like(prompt))
            assert torch.equal(got, expected) and positions[:INPUTS] == [4 + 2] * INPUTS
            hook.remove()
            cache = base(prompt[:, :2]).cache
            got = base(prompt[:, 2:], cache=cache).logits
            assert error(got[:, 1:], judge(prompt).logits[:, 3:]) < 3e-3
            with pytest.raises(tensafe.UnsupportedError, match="got a cache, and input_ids without its invocation"):
                base(prompt[:, :1], cache=cache)


def test_several_texts_of_a_prompt_and_its_last_position_alone(tmp_path):
    base = saved(llama, tmp_path, **{**ACTIVATED, "target_modules": ["lm_head"]})
    adapter = tensafe.load_peft(tmp_path)
    judge = judge_of(base, tmp_path)
    with torch.no_grad(), tensafe.torch.attach(base, adapter, base_norms={}):
        texts = base.generate(PROMPTS, attention_mask=SEEN, max_new_tokens=4, do_sample=False, num_beams=2,
                              num_return_sequences=2)
        assert texts.shape == (4, 14)
        last = base(PROMPTS, attention_mask=SEEN, logits_to_keep=1).logits
        assert error(last, judge(PROMPTS, attention_mask=SEEN).logits[:, -1:]) < 3e-3


def test_activated_adapters_need_the_tokens(activated):
    base, adapter, _ = activated
    embeddings = base.model.embed_tokens(PROMPTS).detach()
    with torch.no_grad(), tensafe.torch.attach(base, adapter, base_norms={}) as attached:
        assert attached.base_model(1)(inputs_embeds=embeddings).logits.isfinite().all()  # which needs none
        with pytest.raises(tensafe.UnsupportedError, match="got no input_ids, expected them"):
            base(inputs_embeds=embeddings)
        with pytest.raises(tensafe.UnsupportedError, match="got no input_ids, expected them"):
            base.generate(inputs_embeds=embeddings, max_new_tokens=2)
        with pytest.raises(tensafe.UnsupportedError, match="got guidance_scale"):
            base.generate(PROMPTS, attention_mask=SEEN, max_new_tokens=2, guidance_scale=3.0)
        with pytest.raises(tensafe.UnsupportedError, match=r"q_proj': got hidden states \[2, 10\] .* and no call of the"):
            base.model(PROMPTS)
        assert base(PROMPTS).logits.isfinite().all()
    half = lambda k: tensafe.Adapter(site for name, site in adapter.items() if f"layers.{k}." in name)  # noqa: E731
    first, second = (tensafe.torch.attach(base, half(k), base_norms={}, invocation_tokens=INVOCATION) for k in range(2))
    first.detach()  # in any order
    with torch.no_grad(), pytest.raises(tensafe.UnsupportedError, match="got no input_ids"):
        base(inputs_embeds=embeddings)
    second.detach()
    assert base(inputs_embeds=embeddings).logits.isfinite().all()
    for bad, failure in (([-1], tensafe.ParameterError), ([2**31], tensafe.ParameterError), (["a"], TypeError)):
        with pytest.raises(failure, match="invocation_tokens"):
            tensafe.torch.attach(base, adapter, base_norms={}, invocation_tokens=bad)
    with pytest.raises(tensafe.ParameterError, match="got row_factors of an activated adapter, expected one or"):
        tensafe.torch.attach(base, adapter, base_norms={}, row_factors={})
    with torch.no_grad(), tensafe.torch.attach(base, adapter, base_norms={}, invocation_tokens=[]):
        got = base(PROMPTS).logits
    assert error(got[0, 3:6], base(PROMPTS).logits[0, 3:6].detach()) > 0.1  # everywhere


# What `load_peft` refuses today, with words of the message. What is loaded one day moves to LOADED.
REFUSED = {
    "embeddings": (llama, dict(target_modules=["embed_tokens", "q_proj"]), "adapters of embedding"),
    "embeddings of GPT-2": (gpt2, dict(target_modules=["wte", "c_attn"], fan_in_fan_out=True), "adapters of embedding"),
    "layers trained whole": (llama, dict(target_modules=["q_proj"], modules_to_save=["lm_head"]), "modules_to_save"),
    "a classifier": (classifier, dict(target_modules=["q_proj"], task_type="SEQ_CLS"), "modules_to_save"),
    "rows of embeddings": (llama, dict(target_modules=["q_proj"], trainable_token_indices=[1, 2]),
                           "trainable_token_indices"),
    "biases of experts": (gpt_oss, dict(target_modules=["q_proj"], target_parameters=["experts.down_proj_bias"]),
                          "no weight of a linear layer"),
    "layers used twice": (llama, dict(target_modules=["q_proj"], layer_replication=[(0, 2), (1, 2)]), "layer_repl"),
    "DoRA": (llama, dict(target_modules=["q_proj"], use_dora=True), "use_dora"),
    "block-diagonal": (llama, dict(target_modules=["q_proj"], use_bdlora=peft.BdLoraConfig(["q_proj"], nblocks=2)),
                       "use_bdlora"),
    "a bias of LoRA": (llama, dict(target_modules=["q_proj"], lora_bias=True), "LoRA with a bias"),
    "biases": (qwen2, dict(target_modules=["q_proj"], bias="lora_only"), "a trained bias of the base"),
    "a diagonal between A and B": (llama, dict(target_modules=["q_proj"], kasa_config=peft.KasaConfig()), "kasa_config"),
    "VeLoRA": (llama, dict(target_modules=["q_proj"], velora_config={}), "velora_config"),
    "MonteCLoRA": (llama, dict(target_modules=["q_proj"], monteclora_config={}), "monteclora_config"),
    "PiSSA": (llama, dict(target_modules=["q_proj"], init_lora_weights="pissa"), "path_initial_model_for_weight_conversion"),
    "convolutions": (Convolution, dict(target_modules=["0"]), "only linear layers"),
    "looking ahead": (llama, dict(target_modules=["q_proj"], alpha_pattern={"(?=q)q_proj": 64}), "not supported in a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_until_it_is_loaded(case, tmp_path):
    make, options, words = REFUSED[case]
    saved(make, tmp_path, **options)
    with pytest.raises(tensafe.Error, match=words):
        tensafe.load_peft(tmp_path)


def test_routers_are_refused(tmp_path):
    base = [saved(llama, tmp_path / name, target_modules=["q_proj"]) for name in "ab"][0]
    peft.create_arrow_model(base, [str(tmp_path / name) for name in "ab"], peft.ArrowConfig(top_k=1)).save_pretrained(
        tmp_path)
    with pytest.raises(tensafe.UnsupportedError, match="arrow_config"):
        tensafe.load_peft(tmp_path / "arrow_router")


def dora(make, folder, dtype=torch.float32, change=lambda tensors: None, **options):
    """A base model and PEFT's judge with magnitudes of many sizes, which `change` may change, as PEFT saves them."""
    base = saved(make, folder, use_dora=True, **options)
    torch.manual_seed(2)
    for name, parameter in base.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.5)
    file = folder / "adapter_model.safetensors"
    tensors = safetensors.torch.load_file(file)
    for name in tensors:
        if "magnitude" in name:
            tensors[name] = 2 * torch.randn(len(tensors[name]))
    change(tensors)
    safetensors.torch.save_file(tensors, file)
    return base.to(dtype), peft.PeftModel.from_pretrained(copy.deepcopy(base).to(dtype), folder).eval()


def converted(base, folder):
    tensafe.dora.convert(base, folder, folder / "plain")
    return tensafe.load_peft(folder / "plain"), folder / "plain" / "row_factors.safetensors"


def check_layers(base, judge, adapter, tolerance, **options):
    """Every layer computes what PEFT's does, up to that part of what the adapter adds."""
    layers = {name.removeprefix("base_model.model."): layer for name, layer in judge.named_modules()
              if isinstance(layer, peft.tuners.lora.LoraLayer)}
    assert sorted(adapter) == sorted(layers)
    with torch.no_grad(), tensafe.torch.attach(base, adapter, base_norms={}, **options):
        for name, layer in layers.items():
            x = torch.randn(2, 3, adapter[name].d_in).to(base.dtype)
            got, expected, plain = base.get_submodule(name)(x), layer(x), layer.base_layer(x)
            assert got.dtype == expected.dtype == base.dtype and got.shape == expected.shape
            assert error((got - plain).double(), (expected - plain).double()) < tolerance, name


DORA = {
    "plain": (llama, dict(target_modules=["q_proj", "down_proj"], lora_dropout=0.1)),
    "rank-stabilised, with biases": (qwen2, dict(target_modules=["q_proj", "v_proj", "o_proj"], use_rslora=True,
                                                 rank_pattern={"v_proj": 3})),
    "weights [in, out]": (gpt2, dict(target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    "the last layer": (llama, dict(target_modules=["lm_head"])),
}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 5e-4), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize("case", DORA)
def test_dora_with_public_row_factors(case, dtype, tolerance, tmp_path):
    make, options = DORA[case]
    base, judge = dora(make, tmp_path, dtype, **options)
    adapter, factors = converted(base, tmp_path)
    before, after = (safetensors.torch.load_file(folder / "adapter_model.safetensors")
                     for folder in (tmp_path, tmp_path / "plain"))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items() if "lora_A" in name)
    assert not any("magnitude" in name for name in after)
    check_layers(base, judge, adapter, tolerance, row_factors=factors)
    check_layers(base, judge, adapter, tolerance, row_factors=safetensors.torch.load_file(factors), tokens_ahead=8)
    with torch.no_grad(), tensafe.torch.attach(base, adapter, base_norms={}):
        assert error(logits(base).double(), logits(judge).double()) > 0.1  # without the factors it is another adapter


def of_layer(number, value):
    """Changes the magnitude of an output of a layer."""
    def change(tensors):
        tensors[f"base_model.model.model.layers.{number}.self_attn.q_proj.lora_magnitude_vector"][5] = value
    return change


def test_dora_of_magnitude_zero(tmp_path):
    base, judge = dora(qwen2, tmp_path, target_modules=["q_proj"], change=of_layer(1, 0))
    adapter, factors = converted(base, tmp_path)
    assert safetensors.torch.load_file(factors)["model.layers.1.self_attn.q_proj"][5] == 0
    check_layers(base, judge, adapter, 5e-4, row_factors=factors)


def test_dora_that_is_not_converted(tmp_path):
    options = dict(target_modules=["q_proj"])
    for i, (value, got) in enumerate([(float("nan"), "nan"), (float("inf"), "inf"), (-1e9, "-[0-9.]+e.08")]):
        folder = tmp_path / str(i)
        base, _ = dora(llama, folder, change=of_layer(1, value), **options)
        with pytest.raises(tensafe.ParameterError, match=f"layers.1.*: output 5: got {got}, expected a number from -"):
            converted(base, folder)
        assert sorted(file.name for file in folder.iterdir()) == [
            "README.md", "adapter_config.json", "adapter_model.safetensors"]
    folder = tmp_path / "norm"
    base, _ = dora(llama, folder, **options, change=lambda tensors: [
        tensors[name].__setitem__(7, 0) for name in tensors if "layers.1" in name and "lora_B" in name])
    base.model.layers[1].self_attn.q_proj.weight.data[7] = 0
    with pytest.raises(tensafe.ParameterError, match="layers.1.self_attn.q_proj': output 7: got .* of norm 0, by"):
        converted(base, folder)
    base.model.layers[1].self_attn.q_proj.to("meta")
    with pytest.raises(tensafe.UnsupportedError, match="layers.1.*quantised or elsewhere, expected numbers: load the"):
        converted(base, folder)
    del base.model.layers[1].self_attn.q_proj
    with pytest.raises(tensafe.ParameterError, match="convert: site .*layers.1.* is no module of the model, 1 of 2 are$"):
        converted(base, folder)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"
    for i, (change, error_type, words) in enumerate([
            (lambda tensors: tensors.pop(name), tensafe.FormatError, "layers.0.*no lora_magnitude_vector, expected both"),
            (lambda tensors: tensors.update({name.replace("q_", "x_"): torch.ones(48)}), tensafe.FormatError,
             "layers.0.self_attn.x_proj': got no LoRA, expected both"),
            (lambda tensors: tensors.update({name: torch.ones(1)}), tensafe.ShapeError,
             r"lora_magnitude_vector of shape \[1\], expected \[48\]")]):
        base = saved(llama, tmp_path / f"file{i}", use_dora=True, **options)
        file = tmp_path / f"file{i}" / "adapter_model.safetensors"
        tensors = safetensors.torch.load_file(file)
        change(tensors)
        safetensors.torch.save_file(tensors, file)
        with pytest.raises(error_type, match=words):
            converted(base, file.parent)
    base = saved(llama, tmp_path / "lora", **options)
    with pytest.raises(tensafe.UnsupportedError, match="got no use_dora, expected a DoRA adapter: others"):
        converted(base, tmp_path / "lora")
    (tmp_path / "lora" / "adapter_config.json").write_text("[]")
    with pytest.raises(tensafe.FormatError, match="adapter_config.json: .*, expected a configuration of PEFT"):
        converted(base, tmp_path / "lora")
    (tmp_path / "lora" / "adapter_model.safetensors").write_bytes(b"version https://git-lfs")
    with pytest.raises(tensafe.FormatError, match="adapter_model.safetensors: .*, expected a safetensors file"):
        converted(base, tmp_path / "lora")
    with pytest.raises(tensafe.FileError, match="nowhere.*, expected a safetensors file"):
        converted(base, tmp_path / "nowhere")


def test_dora_overwrites_nothing(tmp_path):
    base, _ = dora(llama, tmp_path / "dora", target_modules=["q_proj"])
    for out in (tmp_path / "dora", tmp_path / "no" / "parent"):
        with pytest.raises(tensafe.FileError, match=f"{out}: .*, expected a new folder"):
            tensafe.dora.convert(base, tmp_path / "dora", out)
    assert os.listdir(tmp_path) == ["dora"] and len(os.listdir(tmp_path / "dora")) == 3


def test_conv1d_has_inputs_first():
    base = gpt2()
    layer = base.transformer.h[0].attn.c_attn
    for a, b, words in ((48, 144, ""), (144, 48, "got a layer 48 -> 144, expected 144 -> 48")):
        adapter = tensafe.Adapter(tensafe.Site("transformer.h.0.attn.c_attn", np.eye(1, a), np.eye(b, 1)))
        if words:
            with pytest.raises(tensafe.ShapeError, match=words):
                tensafe.torch.attach(base, adapter)
        else:
            tensafe.torch.attach(base, adapter).detach()
    most = 1024 * layer.weight.norm().item()
    with pytest.raises(tensafe.ParameterError, match=f"expected at most {most:.6g}, the base"):
        tensafe.torch.attach(base, tensafe.Adapter(tensafe.Site("h.0.attn.c_attn", np.eye(1, 48), np.eye(144, 1) * 1e6)))


def test_a_pattern_that_fits_nothing_is_an_error(tmp_path):
    with pytest.warns(RuntimeWarning, match="did not match"):
        saved(llama, tmp_path, target_modules=["q_proj"], rank_pattern={"k_proj": 2})
    with pytest.raises(tensafe.FormatError, match='rank_pattern "k_proj": fits no site'):
        tensafe.load_peft(tmp_path)


def test_pickles_are_refused_by_name(tmp_path):
    saved(llama, tmp_path, target_modules=["q_proj"])
    (tmp_path / "adapter_model.safetensors").unlink()
    torch.save({}, tmp_path / "adapter_model.bin")
    with pytest.raises(tensafe.UnsupportedError, match="a pickle, which is not read; save the adapter as safetensors"):
        tensafe.load_peft(tmp_path)
    (tmp_path / "adapter_model.bin").rename(tmp_path / "adapter_model.safetensors")
    with pytest.raises(tensafe.FormatError, match="is a zip archive, as torch.save writes it"):
        tensafe.load_peft(tmp_path)


@pytest.mark.parametrize("inner", [False, True])
def test_attached_to_what_is_around_or_in_the_model(inner, tmp_path):
    base = saved(llama, tmp_path, target_modules=["q_proj", "down_proj"])
    adapter, judge = tensafe.load_peft(tmp_path), judge_of(base, tmp_path)
    part = base.model if inner else peft.get_peft_model(base, peft.LoraConfig(target_modules=["up_proj"]))
    with torch.no_grad():
        expected = logits(judge)
        with tensafe.torch.attach(part, adapter, base_norms={}):
            assert error(logits(base), expected) < 3e-3


def test_multihead_attention_is_not_attached(tmp_path):
    base = saved(Attention, tmp_path, target_modules=["attention"])
    with pytest.raises(tensafe.ParameterError, match="'attention.base_layer.out_proj' is no module"):
        tensafe.torch.attach(base, tensafe.load_peft(tmp_path))


@pytest.mark.parametrize("config", [peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]),
                                    peft.LoHaConfig(target_modules=["q_proj"]),
                                    peft.VeraConfig(target_modules=["q_proj"])])
def test_other_methods_are_refused_by_name(config, tmp_path):
    peft.get_peft_model(llama(), config).save_pretrained(tmp_path)
    with pytest.raises(tensafe.UnsupportedError, match=f'peft_type "{config.peft_type.value}"'):
        tensafe.load_peft(tmp_path)


# Options that say where the adapter came from, or how it starts and trains.
HARMLESS = {"auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
            "inference_mode", "loftq_config", "lora_ga_config", "megatron_config", "megatron_core", "peft_type",
            "peft_version", "qalora_group_size", "revision", "runtime_config"}
HAS_ITS_OWN_TEST = {"alora_invocation_tokens", "arrow_config", "r", "lora_alpha"}
NOT_MADE_HERE = {"use_qalora"}  # quantised layers


def test_every_option_of_lora_has_a_case():
    """Another version of PEFT may have an option that changes what A and B mean."""
    tried = {option for case in [*LOADED.values(), *EXPERTS.values(), *REFUSED.values()] for option in case[1]}
    options = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert options <= tried | HARMLESS | HAS_ITS_OWN_TEST | NOT_MADE_HERE
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    table = guide[guide.index("## What loads"):].split("\n## ")[0]
    assert options <= set(re.findall(r"`(\w+)`", table))
