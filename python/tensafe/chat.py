"""Talks with a language model whose adapter is on a server: what `tensafe chat` does."""

import collections
import contextlib
import copy
import hashlib
import itertools
import json
import os
import pathlib
import sys
import time
import unicodedata
import warnings

import rich.cells
import rich.console
import rich.live
import rich.text
import torch
import transformers

from .errors import (AdapterChangedError, ClosedError, ConnectionLost, Error, FileError, QueryLimitError,
                     UnsupportedError)
from .link import tokens_a_pass
from .model import Session, connect
from .torch import _last, attach

_RAISE = "The adapter's owner can allow more: --client-share of tensafe-server (docs/service.md)."
_ACCEPTANCE = 0.8  # of drafts, where a budget is foretold
_BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # turn text around


class _Watched(Session):
    """A session that counts, and that waits `patience` seconds for a server that is gone."""

    def __init__(self, session, patience):
        super().__init__(session._core)
        self.patience = patience
        self.counts = collections.Counter(waited=0, calls=0)  # all keys: another thread reads
        self.began = self.lost = None  # the call under way, and since when it has no connection
        self.look()

    def look(self):
        """Reads what, in another thread, would wait for a call."""
        self.left, self.counts["bytes"] = self.queries_left, sum(self.traffic or (0,))
        self.counts["bad"], self.counts["clamped"] = self.bad_states, self.clamped_deltas

    def deltas(self, site, x, **options):
        self.began = time.monotonic()
        try:
            result = self._patient(site, x, options)
        finally:
            with contextlib.suppress(ClosedError):
                self.look()
            self.counts["waited"] += time.monotonic() - self.began
            self.began = self.lost = None
        self.counts["calls"] += 1
        return result

    def _patient(self, site, x, options):
        try:
            return super().deltas(site, x, **options)
        except ConnectionLost as e:
            self.lost = self.lost or time.monotonic()
            if time.monotonic() - self.lost > self.patience:
                raise
            if e.answered is None:
                return self._patient(site, x, options)
            left = torch.from_numpy(~e.answered)  # what was answered is not asked, and paid for, again
            for name, rest in self._patient(site, x[left], options).items():
                e.partial[name][left] = rest
            return e.partial


class _Streamer(transformers.TextStreamer):
    """Keeps a text and what it costs, and shows it as it comes."""

    def __init__(self, tokenizer, session, positions, drafts, show):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.session, self.prompt, self.drafts, self.show = session, positions, drafts, show
        self.text, self.ids, self.passes = "", [], 0
        self.begin, self.before = time.monotonic(), session.counts.copy()

    def put(self, value):
        if not self.next_tokens_are_prompt:
            self.ids += value.flatten().tolist()
            self.passes += 1
        super().put(value)

    def on_finalized_text(self, text, stream_end=False):
        self.text += text
        self.show(_shown(text))

    def status(self):
        """What the text costs so far, in one line."""
        session, now, tokens = self.session, time.monotonic(), len(self.ids)
        began, lost, spent = session.began, session.lost, session.counts - self.before
        if lost:
            return f"no connection for {now - lost:.0f} s, trying again"
        if not tokens:
            inputs = len(session._sites.groups)
            done = min(spent["calls"], inputs)
            return f"prompt {'━' * (20 * done // inputs):╌<20} {done} of {inputs} inputs, {self.prompt} positions"
        waiting = f" ({now - began:.0f} s now)" if began and now - began > 2 else ""
        return " · ".join([f"{tokens} tokens", f"{tokens / (now - self.begin):.1f} a second",
                           f"{spent['waited'] / tokens * 1e3:.0f} ms of each waiting{waiting}",
                           f"{spent['bytes'] / 1e6:.2f} MB", _positions(session.left),
                           *([f"{tokens - self.passes} of {self.drafts * self.passes} drafts"] if self.drafts else [])])


class _Screen:
    """Shows a text above the status: whole lines stay, the last one is written anew."""

    def __init__(self, console):
        self.console, self.line, self.streamer = console, "", None

    def show(self, text):
        self.line += text.expandtabs(4)
        while "\n" in self.line or rich.cells.cell_len(self.line) >= self.console.width:
            head, newline, rest = self.line.partition("\n")
            lines = rich.text.Text(head).wrap(self.console, self.console.width - 1)
            first = lines[0].plain.rstrip() if len(lines) > 1 else head
            head = head[len(first):].lstrip(" ")
            self.line = head + newline + rest if head else rest
            self.console.print(rich.text.Text(first))

    def __rich__(self):
        return rich.console.Group(rich.text.Text(self.line), rich.text.Text(self.streamer.status(), style="dim"))


class _Chat:
    def __init__(self, options, console):
        self.options, self.console = options, console
        self.model, self.tokenizer = _load(options)
        shared = {id(t): t for t in itertools.chain(self.model.parameters(), self.model.buffers())}
        self.plain = _plain(copy.deepcopy(self.model, shared), options.plain) if options.plain else None
        self._check_tokenizer()
        with console.status(f"connecting to {options.server}"):
            opened = connect(options.server, options.adapter, ca=options.ca, identity=options.identity, pin=options.pin,
                             publisher=options.publisher)
        self.session = _Watched(opened, options.patience)
        self.invocation = self.tokenizer(options.invocation, add_special_tokens=False)["input_ids"]
        self.attachment = attach(self.model, self.session, invocation_tokens=self.invocation,
                                 row_factors=self.options.row_factors)
        self.assistant, self.drafts = {}, 0
        if options.drafts != 0:
            self._draft()
        self.say(f"{options.adapter}: {len(self.session.sites)} sites, {self.drafts} drafts a pass, "
                 f"{_positions(self.session.left)}")
        self.forget()

    def _draft(self):
        try:
            base = self.attachment.base_model(self.options.drafts, rate=self.options.rate * 1e6 / 8,
                                              acceptance=_ACCEPTANCE, tokens=self.options.max_new_tokens,
                                              lookup=not self.options.no_lookup)
        except UnsupportedError as e:  # of recurrent states
            return self.warn(f"no drafts: {e}")
        self.drafts = base.generation_config.num_assistant_tokens
        if self.drafts:
            self.assistant = {"assistant_model": base}
            self.model.register_forward_pre_hook(_cut_cached, with_kwargs=True, prepend=True)

    def forget(self):
        """Begins a conversation."""
        self.messages, self.known, self.cache = [], [], transformers.DynamicCache(config=self.model.config)

    def say(self, text, style="dim"):
        self.console.print(rich.text.Text(_shown(text), style=style))

    def warn(self, text):
        self.say(text, "yellow")

    def _check_tokenizer(self):
        ours, theirs, name, plain = tokenizer_hash(self.tokenizer), self.options.tokenizer, "", self.options.plain
        if plain and (plain / "tokenizer_config.json").exists():
            theirs = tokenizer_hash(transformers.AutoTokenizer.from_pretrained(plain))
            name = f"{json.loads((plain / 'adapter_config.json').read_bytes()).get('base_model_name_or_path')}, "
        if theirs and not ours.startswith(theirs.lower()):
            self.warn(f"the tokenizer of {self.options.model}, {ours[:16]}, is not that of the adapter's base model, "
                      f"{name}{theirs[:16]}: the text may make no sense")

    def _cached(self, ids):
        """Cuts the cache to what it has of these tokens, all but the last, and returns how many these are."""
        lengths = [layer.get_seq_length() for layer in self.cache.layers]  # after Ctrl-C not all the same
        keep = min([len(os.path.commonprefix([self.known, ids[:-1]])), *lengths])
        try:
            for layer, length in zip(self.cache.layers, lengths):
                if keep and length > keep:
                    layer.crop(keep - length)
        except (AttributeError, RuntimeError):  # recurrent states, and windows that went on
            keep = 0
        if not keep:
            self.cache = transformers.DynamicCache(config=self.model.config)
        return keep

    def answer(self, text):
        """Shows the model's answer, and returns whether it came to its end."""
        messages = [*self.messages, {"role": "user", "content": text}]
        ids = (self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
               if self.tokenizer.chat_template else
               self.tokenizer("".join(message["content"] for message in messages)))["input_ids"]
        start = _last(ids, self.invocation) if self.invocation else 0  # of the adapter; None: it does not apply
        positions = 0 if start is None else len(ids) - max(self._cached(ids), start) + self.drafts
        left = self.session.left
        of_each = (self.drafts + 1) / tokens_a_pass(_ACCEPTANCE, self.drafts)
        if start is None:
            self.warn("the invocation is not in the prompt: the base model answers")
            left = None
        if left is not None and positions > left:
            self.warn(f"the prompt takes {positions} positions, and {left} are left. {_RAISE}")
            return False
        if left is not None and positions + of_each * self.options.max_new_tokens > left:
            self.warn(f"{left} positions are left, of which the prompt takes {positions}: the text may end after some "
                      f"{(left - positions) / of_each:.0f} tokens. {_RAISE}")
        screen = None if self.options.prompt else _Screen(self.console)
        streamer = _Streamer(self.tokenizer, self.session, positions, self.drafts, screen.show if screen else _write)
        try:
            if screen:
                screen.streamer = streamer
            with rich.live.Live(screen, console=self.console) if screen else contextlib.nullcontext():
                why = self._generate(ids, streamer)
        finally:
            # Of the last token a cache may have what was a rejected draft; and what another invocation follows is to be
            # the base model's.
            self.known = (ids + streamer.ids)[:-1][:start if self.invocation else None]
            self.messages = [*messages, {"role": "assistant", "content": streamer.text}]
        if not screen:
            _write("\n")
            self.say(streamer.status())
        spent = self.session.counts - streamer.before
        for what, said in (("bad", "hidden states were no"), ("clamped", "deltas were beyond the largest")):
            if spent[what]:
                self.warn(f"{spent[what]} {said} numbers of {self.model.dtype}: try --dtype float32 or bfloat16")
        if why:
            self.warn(why)
        if self.plain is not None:
            self._compare(ids, streamer.ids)
        return why is None

    def _generate(self, ids, streamer):
        """Returns what ended the text early, or None."""
        try:
            self._run(self.model, ids, streamer=streamer, cache=self.cache, **self.assistant)
            return None
        except KeyboardInterrupt:
            why = "interrupted"
        except QueryLimitError as e:
            why = f"the budget ended: {e}. {_RAISE}"
        except (AdapterChangedError, ClosedError):
            raise
        except (Error, RuntimeError, LookupError, ValueError) as e:  # torch's and transformers'
            why = f"the text ended early: {e}"
        streamer.end()
        return why

    def _run(self, model, ids, **options):
        tokens, heat = torch.tensor([ids]), self.options.temperature
        torch.manual_seed(self.options.seed)
        with torch.no_grad():
            return model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), do_sample=heat > 0,
                                  temperature=heat or None, max_new_tokens=self.options.max_new_tokens,
                                  pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id, **options)

    def _compare(self, ids, ours):
        plain = self._run(self.plain, ids)[0, len(ids):].tolist()
        same = len(os.path.commonprefix([plain, ours]))
        if same == len(ours):
            return self.say(f"plain: the same {same} tokens" + f", and {len(plain) - same} more" * (len(plain) > same))
        self.say(f"plain: the same {same} of {len(ours)} tokens, then")
        self.say(self.tokenizer.decode(plain[same:], skip_special_tokens=True), "")


def _shown(text):
    """What terminals act on is not shown: a text is as little trusted as the adapter."""
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" or c in _BIDI else c for c in text)


def _positions(left):
    return "no limit of positions" if left is None else f"{left} positions left"


def _cut_cached(module, args, kwargs):
    """Assisted generation begins with the whole conversation, also what the cache has of it."""
    cache, positions = kwargs.get("cache"), kwargs.get("position_ids")
    if cache is not None and positions is not None and (known := cache.get_seq_length() - int(positions[0, 0])) > 0:
        kwargs.update(input_ids=kwargs["input_ids"][:, known:], position_ids=positions[:, known:])
    return args, kwargs


def _load(options):
    path = pathlib.Path(options.model)
    where, how = (path.parent, {"gguf_file": path.name}) if path.suffix == ".gguf" else (options.model, {})
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            where, dtype=options.dtype, **(how or {"use_safetensors": True}))  # no pickles
        return model.eval(), transformers.AutoTokenizer.from_pretrained(where, **how)
    except (ImportError, KeyError, ValueError) as e:
        raise FileError(f"{options.model}: {e}") from e


def _plain(model, folder):
    try:
        import peft
        return peft.PeftModel.from_pretrained(model, folder).eval()
    except ImportError as e:
        raise UnsupportedError(f"--plain: {e}: pip install peft") from e


def tokenizer_hash(tokenizer) -> str:
    """Returns the SHA-256 of a tokenizer's vocabulary, by which its publisher names it: 64 hex digits."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def _write(text):
    print(text, end="", flush=True)


def run(options) -> int:
    """Chats until the input ends, or answers `options.prompt`. Returns the exit status."""
    warnings.filterwarnings("ignore", category=FutureWarning)  # for those who write models
    transformers.utils.logging.set_verbosity_error()
    if options.prompt is None and not sys.stdin.isatty():
        options.prompt = sys.stdin.read()
    try:
        chat = _Chat(options, rich.console.Console(stderr=options.prompt is not None, highlight=False))
        if options.prompt is not None:
            return 0 if chat.answer(options.prompt) else 1
    except KeyboardInterrupt:
        return 130
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() then has a history
    chat.say("Ctrl-C ends a text, Ctrl-D the program, /new begins anew")
    while True:
        try:
            if (text := input("> ").strip()) == "/new":
                chat.forget()
            elif text:
                chat.answer(text)
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return 0
