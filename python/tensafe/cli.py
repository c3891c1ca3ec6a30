"""Runs the command `tensafe`."""

import argparse
import os
import pathlib
import re
import shutil
import sys
import sysconfig
import time

import numpy as np

import tensafe

from . import _core
from .link import SITES, estimate_link, shapes_of


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tensafe", description="LoRA adapters applied to encrypted hidden states")
    parser.add_argument("--version", action="version", version=f"%(prog)s {tensafe.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="client and server in one process: error, bytes, time")
    demo.add_argument("adapter", nargs="?", help="PEFT directory; by default a made-up adapter of rank 32")
    demo.add_argument("--tokens", type=int, default=64, help="1 to 100000")
    _add_costs(demo)
    demo.set_defaults(run=_demo)

    serve = commands.add_parser("serve", help="start tensafe-server with an adapter, for anybody who can reach it",
                                usage="%(prog)s [--name NAME] [--state FOLDER] DIR [-- OPTIONS OF tensafe-server]",
                                epilog="docs/service.md says what these are for.")
    serve.add_argument("adapter", type=pathlib.Path, help="PEFT directory")
    serve.add_argument("--name", help="name of the adapter; by default that of the directory")
    serve.add_argument("--state", type=pathlib.Path, default="tensafe_server_state",
                       help="folder of certificate and counts, by default %(default)s")
    serve.set_defaults(run=_serve)

    inspect = commands.add_parser("inspect", help="what an adapter, key file or message is, and whether it is sound")
    inspect.add_argument("file", type=pathlib.Path)
    inspect.set_defaults(run=_inspect)

    estimate = commands.add_parser("estimate",
                                   help="bytes and error of a hidden state of each input, or costs of a text over a link")
    estimate.add_argument("what", nargs="?", help="PEFT directory, or RANKxD_INxD_OUT")
    _add_costs(estimate, None)
    link = estimate.add_argument_group("a text over a link")
    link.add_argument("--model", metavar="CONFIG.JSON", help="of a Llama-like model, or its folder")
    link.add_argument("--sites", default=",".join(SITES), metavar="SITE,SITE", help="by default %(default)s")
    link.add_argument("--layers", type=int, help="how many of the last ones are adapted; by default all")
    link.add_argument("--rank", type=int, default=16)
    link.add_argument("--round-trip", type=float, default=20, metavar="MS")
    link.add_argument("--rate", type=float, default=100, metavar="MBIT/S")
    link.add_argument("--memory", type=float, metavar="MB", help="of the client for blocks; by default no limit")
    link.add_argument("--prompt", type=int, default=500, metavar="TOKENS")
    link.add_argument("--acceptance", type=float, default=0.8, help="of drafts, 0 to 1")
    link.add_argument("--forward", type=float, default=0, metavar="MS", help="of the model itself, for a token")
    estimate.set_defaults(run=_estimate)

    chat = commands.add_parser("chat", help="talk with a language model whose adapter is on a server",
                               epilog="Needs gguf, rich, torch and transformers, the extra \"chat\" of this package: pip install "
                                      "with 'FILE.whl[chat]', or in the sources --no-build-isolation './python[chat]'.")
    chat.add_argument("--model", required=True, metavar="DIR|GGUF|ID", help="the base model, as transformers reads it")
    chat.add_argument("--server", required=True, metavar="wss://HOST:PORT")
    chat.add_argument("--adapter", required=True, metavar="NAME", help="its name on the server")
    for name, what in {"ca": "file of the server's certificate", "identity": "file of this client's key, made if there "
                       "is none", "pin": "file of what the adapter must be", "publisher": "key of its owner"}.items():
        chat.add_argument(f"--{name}", help=what)
    chat.add_argument("--prompt", metavar="TEXT", help="answer it and end, as with a text at standard input")
    chat.add_argument("--max-new-tokens", type=int, default=256)
    chat.add_argument("--temperature", type=float, default=0, help="0: the likeliest token")
    chat.add_argument("--seed", type=int, default=1)
    chat.add_argument("--drafts", type=int, choices=range(5), help="of the base model for each pass; by default the "
                      "best number for the round trip and --rate")
    chat.add_argument("--no-lookup", action="store_true", help="draft nothing from the text itself, which is quicker "
                      "than the base, so that a server could notice the pause")
    chat.add_argument("--rate", type=float, default=100, metavar="MBIT/S", help="of the link, for the number of drafts")
    chat.add_argument("--invocation", default="", metavar="TEXT", help="from which on an activated adapter applies")
    chat.add_argument("--row-factors", metavar="FILE", help="of an adapter that was DoRA")
    chat.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    chat.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="for a server that is gone")
    chat.add_argument("--plain", type=pathlib.Path, metavar="DIR", help="PEFT directory: PEFT's text is compared")
    chat.add_argument("--tokenizer", default="", metavar="HEX", help="hash of the tokenizer that the adapter needs")
    chat.set_defaults(run=_chat)

    trace = commands.add_parser("trace", help="whose copy of an adapter a leak is, by the marks that tenants have")
    trace.add_argument("leak", type=pathlib.Path, nargs="?",
                       help="PEFT directory, or safetensors of merged weights, with --base; or --gradients")
    for name, metavar, what in [
            ("adapter", "DIR", "PEFT directory of the owner's"), ("name", "NAME", "of the adapter on the server"),
            ("mark-key", "FILE", "as tensafe-server has it"),
            ("tenants", "FILE", "a name in each line, or the server's list of clients")]:
        trace.add_argument(f"--{name}", required=True, metavar=metavar, help=what)
    for name, metavar, what in [
            ("base", "DIR", "weights of the base model: safetensors"), ("states", "FILE", "safetensors of hidden states "
             "by site, of texts like yours"), ("gradients", "FILE", "safetensors of tensafe.torch.gradients, of texts of a "
             "suspected model, in place of a leak"), ("commitment", "HEX", "to the mark key"), ("plot", "FILE", "picture of z")]:
        trace.add_argument(f"--{name}", metavar=metavar, help=what)
    trace.set_defaults(run=_trace)

    arguments = sys.argv[1:] if arguments is None else arguments
    cut = arguments.index("--") if arguments[:1] == ["serve"] and "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    options.rest = arguments[cut + 1:]
    try:
        return options.run(options) or 0
    except (tensafe.Error, OSError) as e:
        print(f"tensafe {options.command}: {e}", file=sys.stderr)
        return 1


def _add_costs(parser, tokens_ahead=0):
    parser.add_argument("--parameters", default="private_n4096", choices=tensafe.parameter_sets)
    parser.add_argument("--tokens-ahead", type=int, default=tokens_ahead, help="tokens of a block; 0: each goes alone")
    parser.add_argument("--blind", dest="mode", action="store_const", const="blind", default="client_held_b",
                        help="the server holds B too")


def _costs(options):
    return {"parameters": options.parameters, "tokens_ahead": options.tokens_ahead or 0, "mode": options.mode}


def _demo(options):
    if not 1 <= options.tokens <= 100_000:
        raise tensafe.ParameterError(f"--tokens: got {options.tokens}, expected 1 to 100000")
    random = np.random.default_rng(1)
    of = ""
    if options.adapter:
        sites = list(tensafe.load_peft(options.adapter).values())
        of = f", one of {len(sites)}"
        adapter = tensafe.Adapter(sites[0])
    else:
        adapter = tensafe.Adapter([tensafe.Site("q_proj", random.normal(size=(32, 2048)).astype(np.float32),
                                                random.normal(size=(2048, 32)).astype(np.float32) / 32)])
    site = next(iter(adapter.values()))
    h = random.normal(size=(options.tokens, site.d_in)).astype(np.float32)
    server = tensafe.Server(adapter, **_costs(options))
    client = tensafe.Client(server.layout, server.held)
    nonce = tensafe.fresh_nonce()
    answers = server.open(nonce, client.rerandomization_key(nonce))
    sent = np.zeros(2, np.int64)

    def carry(request):
        reply = answers.answer(request)
        sent[:] += len(request), len(reply)
        return reply

    begin = time.perf_counter()
    delta = client.connect(carry).delta(site.name, h)
    seconds = time.perf_counter() - begin
    plain = site.delta(h)
    up, down = sent // options.tokens
    error, norm = np.linalg.norm(delta - plain), np.linalg.norm(plain)
    relative = f"{error / norm:.2e} against plaintext LoRA" if norm else f"{error:.2e}, absolute: the delta is 0"
    print(f"site            {site!r}{of}\nserver          {server!r}\ntokens          {options.tokens}\n"
          f"time a token    {seconds / options.tokens * 1e3:.3f} ms, client and server on one core\n"
          f"bytes a token   {up} up, {down} down\n"
          f"relative error  {relative}")


def _serve(options):
    # Beside this interpreter first, where pip puts it: a virtual environment need not be in PATH.
    server = (os.environ.get("TENSAFE_SPLIT_SERVER") or shutil.which("tensafe-server", path=sysconfig.get_path("scripts"))
              or shutil.which("tensafe-server"))
    if not server:
        raise tensafe.FileError(
            "got no tensafe-server, expected one in PATH or TENSAFE_SPLIT_SERVER: its wheel and its package have it. "
            "To build it, in the sources:\n"
            "  scripts/setup service && cmake --preset release && cmake --build --preset release --target tensafe-server\n"
            "  export TENSAFE_SPLIT_SERVER=$PWD/build/release/service/tensafe-server")
    name, rest = options.name or options.adapter.resolve().name, options.rest
    sys.stdout.flush()
    rest = rest if any(o.split("=")[0] == "--clients" for o in rest) else ["--anybody", *rest]
    os.execv(server, [server, "--state", str(options.state), "--adapter", f"{name}={options.adapter}", *rest])


def _inspect(options):
    if options.file.is_dir() or options.file.name in ("adapter_config.json", "adapter_model.safetensors"):
        print(tensafe.load_peft(options.file if options.file.is_dir() else options.file.parent))
    else:
        content = options.file.read_bytes()
        if content[:4] not in (b"TSKF", b"TSHE"):
            raise tensafe.FormatError(f"{options.file}: neither an adapter nor a key file nor a message of this package")
        found = _core.inspect_key(os.fspath(options.file)) if content[:4] == b"TSKF" else _core.inspect_message(content)
        if "created" in found:
            found["created"] = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found["created"]))
        for key, value in found.items():
            print(f"{key:<16}{value}")


def _estimate(options):
    if (options.what is None) == (options.model is None):
        raise tensafe.ParameterError("expected either a PEFT directory or shape, or --model CONFIG.JSON")
    if options.model is not None:
        cost = estimate_link(shapes_of(options.model, options.sites.split(","), options.layers, options.rank),
                             round_trip=options.round_trip / 1e3, rate=options.rate * 1e6 / 8, prompt=options.prompt,
                             acceptance=options.acceptance, forward=options.forward / 1e3,
                             memory=None if options.memory is None else options.memory * 1e6,
                             **{**_costs(options), "tokens_ahead": options.tokens_ahead})
    else:
        shape = re.fullmatch("([0-9]+)x([0-9]+)x([0-9]+)", options.what)
        if not shape and not os.path.isdir(options.what):
            raise tensafe.ShapeError(f"got {options.what}, expected a PEFT directory, or RANKxD_INxD_OUT as "
                                     "32x2048x4096")
        cost = tensafe.estimate(tuple(map(int, shape.groups())) if shape else tensafe.load_peft(options.what),
                                **_costs(options))
    for key, value in cost.items():
        print(f"{key:<22}{value:.3g}" if isinstance(value, float) else f"{key:<22}{value:,}")


def _progress(done, total):
    if sys.stderr.isatty():
        filled = 32 * done // total
        print(f"\r  sites [{'#' * filled}{'.' * (32 - filled)}] {done}/{total}", end="\n" * (done == total),
              file=sys.stderr, flush=True)


def _tenants(file):
    """Returns the names in a file with one in each line, or in a server's list of clients (docs/service.md)."""
    names = {}
    for number, line in enumerate(pathlib.Path(file).read_text("utf-8", "replace").splitlines(), 1):
        client = re.fullmatch(r"([0-9a-f]{64})( [^ ]*)?(?(2)(?: (?:none|[0-9.eE+-]+))?)", line)
        name = (client[2] or f" key {client[1]}")[1:] if client else line
        if not line or line.startswith("#"):
            continue
        several = client and client[2]  # of a tenant
        if not re.fullmatch("[A-Za-z0-9._-]{1,64}|key [0-9a-f]{64}", name) or (name in names and not several):
            raise tensafe.FormatError(f"{file}: line {number}: got {name[:80]!r}, expected once each a tenant of 1 to 64 "
                                      "letters, digits, -, _ and ., or a line of a list of clients")
        names[name] = number
    return list(names)


def _trace(options):
    found = tensafe.trace(options.leak, options.adapter, options.mark_key, _tenants(options.tenants),
                          name=options.name, base=options.base, states=options.states, gradients=options.gradients,
                          commitment=options.commitment, progress=_progress)
    tests = list(found.tenants[0].z)
    print(found)
    print("\ntenant" + " " * 18 + "".join(f"{test:>9}" for test in tests))
    for each in found.tenants[:max(10, len(found.named))]:
        print(f"{each.name[:23]:<24}" + "".join(f"{each.z[test]:9.1f}" for test in tests))
    if options.plot:
        try:
            import matplotlib
        except ImportError as e:
            raise tensafe.UnsupportedError(f"--plot: {e}: pip install matplotlib") from e
        matplotlib.use("Agg")
        from matplotlib import pyplot
        for test in tests:
            pyplot.plot([each.z[test] for each in found.tenants], ".", label=test)
        for limit in (found.threshold, -found.threshold):
            pyplot.axhline(limit, color="grey", linewidth=1)
        pyplot.yscale("symlog", linthresh=found.threshold)
        pyplot.xlabel("tenants, the most suspicious first")
        pyplot.ylabel("z")
        pyplot.legend()
        pyplot.savefig(options.plot)


def _chat(options):
    try:
        from . import chat
    except ImportError as e:
        raise tensafe.UnsupportedError(f"{e}: what this needs, tensafe chat --help says") from e
    return chat.run(options)
