"""PEFT as the judge: what the library saves is loaded here, and must compute what the library computes."""

import copy
import dataclasses
import os

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # models are made of configurations: nothing is fetched
torch = pytest.importorskip("torch", minversion="2.4")  # of transformers
MISSING = "python/tests/requirements.txt is not installed"
peft = pytest.importorskip("peft", reason=MISSING)
transformers = pytest.importorskip("transformers", reason=MISSING)

import safetensors.torch  # noqa: E402

import tensafe  # noqa: E402
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
    return peft.PeftModel.from_pretrained(copy.deepcopy(base), folder).double().eval()


def check_sites(adapter, judge):
    """Every layer's delta is PEFT's, in the clear and to the precision of double."""
    layers = {name.removeprefix("base_model.model."): layer for name, layer in judge.named_modules()
              if isinstance(layer, peft.tuners.lora.LoraLayer)}
    assert sorted(adapter) == sorted(layers)
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
}


@pytest.mark.parametrize("case", LOADED)
def test_loaded_and_attached_as_peft_does(case, tmp_path):
    make, options = LOADED[case]
    base = saved(make, tmp_path, **options)
    adapter, judge = tensafe.load_peft(tmp_path), judge_of(base, tmp_path)
    check_sites(adapter, judge)
    check_logits(base, adapter, judge)


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


# What `load_peft` refuses today, with words of the message. What is loaded one day moves to LOADED.
REFUSED = {
    "embeddings": (llama, dict(target_modules=["embed_tokens", "q_proj"]), "embed_tokens.base_layer.weight\": unknown"),
    "embeddings of GPT-2": (gpt2, dict(target_modules=["wte", "c_attn"], fan_in_fan_out=True), "adapters of embedding"),
    "the last layer, whose base PEFT saves as well": (llama, dict(target_modules=["lm_head", "q_proj"]),
                                                      "lm_head.base_layer.weight\": unknown"),
    "layers trained whole": (llama, dict(target_modules=["q_proj"], modules_to_save=["lm_head"]), "modules_to_save"),
    "a classifier": (classifier, dict(target_modules=["q_proj"], task_type="SEQ_CLS"), "modules_to_save"),
    "rows of embeddings": (llama, dict(target_modules=["q_proj"], trainable_token_indices=[1, 2]),
                           "trainable_token_indices"),
    "experts": (mixtral, dict(target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj"]),
                "target_parameters"),
    "layers used twice": (llama, dict(target_modules=["q_proj"], layer_replication=[(0, 2), (1, 2)]), "layer_repl"),
    "only after an invocation": (llama, dict(target_modules=["q_proj"], task_type="CAUSAL_LM",
                                             alora_invocation_tokens=[7]), "alora_invocation_tokens"),
    "DoRA": (llama, dict(target_modules=["q_proj"], use_dora=True), "use_dora"),
    "block-diagonal": (llama, dict(target_modules=["q_proj"], use_bdlora=peft.BdLoraConfig(["q_proj"], nblocks=2)),
                       "use_bdlora"),
    "a bias of LoRA": (llama, dict(target_modules=["q_proj"], lora_bias=True), "lora_bias"),
    "biases": (qwen2, dict(target_modules=["q_proj"], bias="lora_only"), '"bias" other than'),
    "a diagonal between A and B": (llama, dict(target_modules=["q_proj"], kasa_config=peft.KasaConfig()), "lora_diag"),
    "VeLoRA": (llama, dict(target_modules=["q_proj"], velora_config={}), "lora_velora_embed"),
    "MonteCLoRA": (llama, dict(target_modules=["q_proj"], monteclora_config={}), "lora_monteclora"),
    "PiSSA": (llama, dict(target_modules=["q_proj"], init_lora_weights="pissa"), "pissa"),
    "MiCA": (llama, dict(target_modules=["q_proj"], init_lora_weights="mica"), "mica"),
    "convolutions": (Convolution, dict(target_modules=["0"]), "only linear layers"),
    "an anchored pattern": (llama, dict(target_modules=["q_proj"], alpha_pattern={
        r"^model\.layers\.0\.self_attn.q_proj": 64}), "a regular expression"),
    "alternatives": (llama, dict(target_modules=["q_proj", "v_proj"], alpha_pattern={"(q|v)_proj": 64}),
                     "a regular expression"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_until_it_is_loaded(case, tmp_path):
    make, options, words = REFUSED[case]
    saved(make, tmp_path, **options)
    with pytest.raises(tensafe.Error, match=words):
        tensafe.load_peft(tmp_path)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="the dots of a pattern are any character to PEFT")
def test_dots_in_patterns(tmp_path):
    base = saved(llama, tmp_path, target_modules=["q_proj"], alpha_pattern={"self.attn.q_proj": 64})
    check_sites(tensafe.load_peft(tmp_path), judge_of(base, tmp_path))


@pytest.mark.xfail(strict=True, raises=pytest.fail.Exception, reason="arrow_config is not looked at")
def test_routers_are_refused(tmp_path):
    base = [saved(llama, tmp_path / name, target_modules=["q_proj"]) for name in "ab"][0]
    peft.create_arrow_model(base, [str(tmp_path / name) for name in "ab"], peft.ArrowConfig(top_k=1)).save_pretrained(
        tmp_path)
    with pytest.raises(tensafe.UnsupportedError):
        tensafe.load_peft(tmp_path / "arrow_router")


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
    norm = layer.weight.norm().item()
    with pytest.raises(tensafe.ParameterError, match=f"expected at most {norm:.6g}, the base"):
        tensafe.torch.attach(base, tensafe.Adapter(tensafe.Site("h.0.attn.c_attn", np.eye(1, 48), np.eye(144, 1) * 99)))


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
HAS_ITS_OWN_TEST = {"arrow_config", "r", "lora_alpha"}
NOT_MADE_HERE = {"use_qalora"}  # quantised layers


def test_every_option_of_lora_has_a_case():
    """Another version of PEFT may have an option that changes what A and B mean."""
    tried = {option for case in [*LOADED.values(), *REFUSED.values()] for option in case[1]}
    options = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert options <= tried | HARMLESS | HAS_ITS_OWN_TEST | NOT_MADE_HERE
