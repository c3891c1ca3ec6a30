"""`tensafe chat` with a tiny model, against tensafe-server, which TENSAFE_SPLIT_SERVER names; PEFT judges."""

import argparse
import builtins
import io
import json
import re
import shutil
import signal
import sys

import pytest

import tensafe
from tensafe import cli
from test_network import SERVER, Service

pytestmark = pytest.mark.skipif(not SERVER, reason="no tensafe-server: TENSAFE_SPLIT_SERVER is not set")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
tokenizers = pytest.importorskip("tokenizers")
chat = pytest.importorskip("tensafe.chat")

UNLIMITED = [f"--{whose}-share=none" for whose in ("client", "tenant", "adapter")]
TOKENS = 24


def make_tokenizer(words):
    vocabulary = {word: at for at, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=words[0]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    made.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    return made


def make_model(hidden=64):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=100, hidden_size=hidden, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None)).eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder of a model and its adapter; with_tokenizer is an adapter with another tokenizer beside it."""
    folder = tmp_path_factory.mktemp("files")
    model = make_model()
    model.save_pretrained(folder / "model")
    make_tokenizer([f"w{i}" for i in range(100)]).save_pretrained(folder / "model")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=16, init_lora_weights=False,
                                                         target_modules=["q_proj", "k_proj", "v_proj"]))
    for name in ("adapter", "with_tokenizer"):
        adapted.save_pretrained(folder / name)
        config = folder / name / "adapter_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": "somebody/tiny"}))
    make_tokenizer([f"v{i}" for i in range(100)]).save_pretrained(folder / "with_tokenizer")
    return folder


@pytest.fixture(scope="module")
def service(files, tmp_path_factory):
    options = "--anybody", "--adapter", f"tiny={files / 'adapter'}", *UNLIMITED
    made = Service(tmp_path_factory.mktemp("service"), *options)
    yield made
    made.stop()


def arguments(files, service, *more, model="model"):
    return ["chat", "--model", str(files / model), "--server", f"wss://localhost:{service.port}", "--adapter", "tiny",
            "--ca", str(service.folder / "state" / "certificate.pem"), "--max-new-tokens", str(TOKENS),
            *([] if "--drafts" in more else ["--drafts", "0"]), *map(str, more)]


def run(capfd, files, service, *more, **kinds):
    code = cli.main(arguments(files, service, *more, **kinds))
    said = capfd.readouterr()
    return code, said.out, " ".join(said.err.split())  # as wide as any terminal


@pytest.fixture(scope="module")
def text_of(files):
    """PEFT's text after a prompt."""
    model = peft.PeftModel.from_pretrained(make_model(), files / "adapter").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(files / "model")

    def text(prompt):
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS)
        return tokenizer.decode(made[0, ids.shape[1]:])

    return text


@pytest.fixture
def told(monkeypatch):
    """Makes `run` interactive: answers `input` with these texts. What a text shows goes through `told.show`."""
    texts, told = [], argparse.Namespace()

    def say(*more):
        texts.extend(more)
        monkeypatch.setattr(sys, "stdin", argparse.Namespace(isatty=lambda: True))
        monkeypatch.setattr(builtins, "input", read)

    def read(_):
        if not texts:
            raise EOFError
        return texts.pop(0)

    told.say = say
    return told


def test_streams_what_peft_writes(capfd, monkeypatch, files, service, text_of):
    pieces = []
    monkeypatch.setattr(chat, "_write", lambda text: pieces.append(text))
    code, _, said = run(capfd, files, service, "--prompt", "w1 w2 w3", "--plain", files / "adapter")
    assert code == 0 and "".join(pieces) == text_of("w1 w2 w3") + "\n" and len(pieces) > TOKENS / 2
    assert f"{TOKENS} tokens · " in said and f"plain: the same {TOKENS} tokens" in said and "is not that of" not in said
    assert "tiny: 6 sites, 0 drafts a pass, no limit of positions" in said


def test_a_prompt_at_standard_input(capfd, monkeypatch, files, service, text_of):
    monkeypatch.setattr(sys, "stdin", io.StringIO("w5 w6"))
    assert run(capfd, files, service)[:2] == (0, text_of("w5 w6") + "\n")


def test_sampling_is_plain_sampling_too(capfd, files, service, text_of):
    code, out, said = run(capfd, files, service, "--prompt", "w1", "--temperature", "0.9", "--plain", files / "adapter")
    assert code == 0 and f"plain: the same {TOKENS} tokens" in said and out != text_of("w1") + "\n"


@pytest.mark.parametrize("drafts", [0, 4])
def test_ctrl_c_stops_a_text_and_not_the_program(capfd, monkeypatch, told, files, service, text_of, drafts):
    show = chat._Screen.show
    shown = []

    def interrupting(self, text):
        show(self, text)
        shown.append(text)
        if len(shown) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(chat._Screen, "show", interrupting)
    answers, answer = [], chat._Chat.answer
    monkeypatch.setattr(chat._Chat, "answer", lambda self, text: (answer(self, text), answers.append(self.messages)))
    told.say("w1 w2 w3", "w9", "/new", "w5 w6")
    code, out, _ = run(capfd, files, service, "--drafts", drafts)
    assert code == 0 and out.count("interrupted") == 1
    (_, cut), (*_, second), (_, last) = ([message["content"] for message in each] for each in answers)
    assert cut and text_of("w1 w2 w3").startswith(cut.rstrip()) and last == text_of("w5 w6")
    assert second == text_of(f"w1 w2 w3 {cut} w9")  # whatever the cache had of a rejected draft
    assert "".join(shown).endswith(last)
    assert f"{TOKENS} tokens · " in out


@pytest.mark.parametrize("drafts", ["0", "2"])
def test_a_conversation_pays_for_what_is_new(capfd, monkeypatch, files, service, text_of, drafts):
    asked, pieces = [], []
    ask = tensafe.Session.deltas
    monkeypatch.setattr(chat, "_write", lambda text: pieces.append(text))
    monkeypatch.setattr(tensafe.Session, "deltas", lambda self, site, x, **options: (
        asked.append(x[..., 0].numel()), ask(self, site, x, **options))[1])
    options = parsed(files, service, "--prompt", "-", "--drafts", drafts)
    talk = chat._Chat(options, chat.rich.console.Console(stderr=True))
    assert talk.answer("w1 w2 w3")
    first = "".join(pieces).strip()
    assert first == text_of("w1 w2 w3")
    asked.clear()
    pieces.clear()
    assert talk.answer("w4")
    # The last token of the first text, which no pass had seen, and the new one; with drafts.
    assert asked[0] == 2 + int(drafts) and asked[2:] and set(asked[2:]) <= {1 + d for d in range(int(drafts) + 1)}
    assert "".join(pieces).strip() == text_of(f"w1 w2 w3 {first} w4")
    talk.attachment.detach()


def test_a_pass_that_was_interrupted_in_its_middle(monkeypatch, files, service, text_of):
    ask, pieces, asked = tensafe.Session.deltas, [], []

    def interrupted(self, site, x, **options):
        asked.append(x[..., 0].numel())
        if len(asked) == 12:  # the second layer's, of a pass whose token the first one has kept
            raise KeyboardInterrupt
        return ask(self, site, x, **options)

    monkeypatch.setattr(chat, "_write", lambda text: pieces.append(text))
    monkeypatch.setattr(tensafe.Session, "deltas", interrupted)
    talk = chat._Chat(parsed(files, service, "--prompt", "-"), chat.rich.console.Console(stderr=True))
    assert not talk.answer("w1 w2 w3")
    first = "".join(pieces).strip()
    assert text_of("w1 w2 w3").startswith(first) and len(first.split()) == 5
    pieces.clear()
    assert talk.answer("w4") and "".join(pieces).strip() == text_of(f"w1 w2 w3 {first} w4")
    assert asked[12] == 2  # the last token of the first text and the new one
    talk.attachment.detach()


def test_an_activated_adapter(capfd, monkeypatch, told, files, service, tmp_path):
    """Its weights are those of `tiny`, which the server does not tell from it."""
    shutil.copytree(files / "adapter", tmp_path / "adapter")
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "task_type": "CAUSAL_LM",
                                  "alora_invocation_tokens": [7, 8]}))
    ask, rows = tensafe.Session.deltas, []
    monkeypatch.setattr(tensafe.Session, "deltas", lambda self, site, x, **options: (
        rows.append(x[..., 0].numel()), ask(self, site, x, **options))[1])
    told.say("w1 w2 w7 w8 w3", "w4 w5 w7 w8", "/new", "w1 w2")
    code, out, _ = run(capfd, files, service, "--invocation", "w7 w8", "--plain", tmp_path / "adapter")
    assert code == 0 and out.count(f"plain: the same {TOKENS} tokens") == 3
    assert out.count("the invocation is not in the prompt: the base model answers") == 1
    assert sum(rows) / 2 == (3 + TOKENS - 1) + (2 + TOKENS - 1)  # of two layers; the last text is the base model's


def parsed(files, service, *more):
    """The options of a command line."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_chat", seen.append)
        cli.main(arguments(files, service, *more))
    return seen[0]


def test_the_end_of_the_budget_is_told_before_and_the_text_kept(capfd, files, text_of, tmp_path):
    service = Service(tmp_path, "--anybody", "--adapter", f"tiny={files / 'adapter'}", "--client-share", "0.3")
    identity = "--identity", tmp_path / "identity.pem"
    code, out, said = run(capfd, files, service, "--prompt", "w1 w2 w3", *identity)
    left = int(re.search(r"0 drafts a pass, (\d+) positions left", said)[1])
    assert 5 < left < TOKENS, "the share does not make a budget that ends in the text"
    tokens = left - 3 + 1  # the last token is asked for nothing
    assert f"{left} positions are left, of which the prompt takes 3: the text may end after some" in said
    assert code == 1 and said.count("--client-share") == 2 and "the budget ended: " in said
    assert len(out.split()) == tokens and text_of("w1 w2 w3").startswith(out.strip())
    code, out, said = run(capfd, files, service, "--prompt", "w1 w2 w3", *identity)
    assert code == 1 and not out and "the prompt takes 3 positions, and 0 are left" in said
    service.stop()


def test_a_server_that_dies_in_a_text_and_comes_back(capfd, monkeypatch, files, text_of, tmp_path):
    options = ["--anybody", "--adapter", f"tiny={files / 'adapter'}", *UNLIMITED]
    running = [Service(tmp_path, *options)]
    pieces = []

    def write(text):
        pieces.append(text)
        if len(pieces) == 8:
            running.pop().stop()
            running.append(Service(tmp_path, *options, port=port))

    port = running[0].port
    monkeypatch.setattr(chat, "_write", write)
    assert run(capfd, files, running[0], "--prompt", "w1 w2 w3")[0] == 0
    assert "".join(pieces) == text_of("w1 w2 w3") + "\n"
    running[0].stop()


def test_what_was_answered_before_a_server_was_gone_is_not_asked_again(monkeypatch, service):
    site = service.connect("tiny").sites[0]
    x = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(1))
    ask, rows = tensafe.Session.deltas, []

    def losing(self, site, x, **options):
        rows.append(x[..., 0].numel())
        result = ask(self, site, x, **options)
        if len(rows) < 3:  # all but the first two rows, and then all but one
            e = tensafe.ConnectionLost("gone")
            e.answered = torch.arange(rows[-1]).view(x.shape[:-1]).numpy() < 3 - len(rows)
            for delta in result.values():
                delta[torch.from_numpy(~e.answered)] = torch.nan
            e.partial = result
            raise e
        return result

    with service.connect("tiny") as session:
        expected = ask(session, site, x)
        monkeypatch.setattr(tensafe.Session, "deltas", losing)
        got = chat._Watched(session, 60).deltas(site, x)
        assert rows == [5, 3, 2]
        for name, delta in expected.items():
            assert (got[name] - delta).norm() < 1e-3 * delta.norm()
        rows.clear()
        with pytest.raises(tensafe.ConnectionLost):
            chat._Watched(session, -1).deltas(site, x)


def test_another_tokenizer_is_told_by_name_and_hash(capfd, files, service):
    ours, theirs = (chat.tokenizer_hash(transformers.AutoTokenizer.from_pretrained(files / name))
                    for name in ("model", "with_tokenizer"))
    said = run(capfd, files, service, "--prompt", "w1", "--plain", files / "with_tokenizer")[2]
    assert re.search(f"{ours[:16]}, is not that of the adapter's base model, somebody/tiny, {theirs[:16]}", said)
    assert "is not that of" in run(capfd, files, service, "--prompt", "w1", "--tokenizer", theirs)[2]
    assert "is not that of" not in run(capfd, files, service, "--prompt", "w1", "--tokenizer", ours[:12].upper())[2]


def test_a_model_that_does_not_fit_is_refused(capfd, files, service, tmp_path):
    make_model(32).save_pretrained(tmp_path)
    make_tokenizer(["w0"]).save_pretrained(tmp_path)
    code, out, said = run(capfd, files, service, "--prompt", "w0", model=tmp_path)
    assert code == 1 and not out and re.search("layers.0.self_attn.._proj': got a layer 32 -> ", said)
    assert run(capfd, files, service, "--prompt", "w0", model="nowhere")[0] == 1


def test_an_overflow_is_told(capfd, files, service, tmp_path):
    model = make_model()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight *= 10 if "self_attn" in name else 3e4 if "mlp" in name else 1  # the adapter's gain is within them
    model.half().save_pretrained(tmp_path)
    make_tokenizer([f"w{i}" for i in range(100)]).save_pretrained(tmp_path)
    said = run(capfd, files, service, "--prompt", "w1 w2", model=tmp_path)[2]
    assert "hidden states were no numbers of torch.float16: try --dtype float32 or bfloat16" in said


def test_a_text_has_no_escape_sequences(files):
    shown = []
    streamer = chat._Streamer(None, argparse.Namespace(counts=chat.collections.Counter()), 0, 0, shown.append)
    streamer.on_finalized_text("a\x1b[2Jb\n\tc\u202e \x9b!\u202f?\u200d")
    assert shown == ["a\ufffd[2Jb\n\tc\ufffd \ufffd!\u202f?\u200d"]
    assert streamer.text == "a\x1b[2Jb\n\tc\u202e \x9b!\u202f?\u200d"  # what the model wrote is what it goes on from


@pytest.mark.parametrize("width", [7, 20, 80])
def test_lines_stay_as_they_were_written(width):
    out = io.StringIO()
    screen = chat._Screen(chat.rich.console.Console(file=out, width=width))
    words = "in the beginning  was\n\n\ta very" + "y" * 30 + " long word, \u795e\u7684\u8a71 and the end"
    for piece in re.findall(".{1,3}", words, re.DOTALL):
        screen.show(piece)
        assert chat.rich.cells.cell_len(screen.line) < width and "\n" not in screen.line
    shown = out.getvalue() + screen.line
    assert "".join(shown.split()) == "".join(words.split()) and all(
        chat.rich.cells.cell_len(line) < width for line in shown.splitlines())


def test_what_is_missing_is_named(capfd, monkeypatch, files, service):
    monkeypatch.delitem(sys.modules, "tensafe.chat")
    monkeypatch.delattr(tensafe, "chat")
    monkeypatch.setitem(sys.modules, "rich.live", None)
    code, _, said = run(capfd, files, service, "--prompt", "w1")
    assert code == 1 and "rich.live" in said and "tensafe chat --help" in said
