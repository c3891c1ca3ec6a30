"""Leaks of a marked adapter name whose they are, and nobody else. Marks are made by tests/data/marks/make.py."""

import importlib.util
import json
import math
import struct
import sys
import types

import numpy as np
import pytest

import tensafe
from conftest import ROOT, error
from tensafe import cli
from tensafe.trace import TESTS, seen_from, threshold

module = sys.modules["tensafe.trace"]
spec = importlib.util.spec_from_file_location("marks", ROOT / "tests" / "data" / "marks" / "make.py")
marks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(marks)
try:
    import torch
except ImportError:
    torch = None

NAME, GUILTY, OTHERS = "qwen", [f"tenant{k}" for k in range(4)], [f"other{k}" for k in range(400)]
# With other names, and in all 11 traces that `ends` judges, any of the others would pass it with probability 10^-3 at most.
BY_CHANCE = math.sqrt(2.0064 * math.log(2 * 11 * 404 * len(TESTS) / 1e-3))
TABLE = np.array([*marks.magnitudes(), *(-m for m in marks.magnitudes())]) / 32
RANK, D_IN, D_OUT = 8, 256, 96
NOISE = np.random.default_rng(2)


def rms(x, axis):
    return np.sqrt((x * x).mean(axis, keepdims=True))


def marked(adapter, tenant, strength=marks.STRENGTH):
    seed, sites = marks.seed_of(NAME, tenant), []
    for site in adapter.values():
        of_site = marks.exchange.hedged_seed(seed, [site.name.encode()])
        b, a = (x + strength * rms(x, axis) * TABLE[np.frombuffer(
            marks.exchange.stream(of_site, marks.MARK, lane, 0, x.size), np.uint8)].reshape(x.shape)
            for x, axis, lane in ((site.b, 0, marks.B), (site.a, 1, marks.A)))
        sites.append(tensafe.Site(site.name, a, b, site.scale))
    return tensafe.Adapter(sites)


def changed(adapter, change):
    """change: of a site, to A and B, and perhaps the scale."""
    return tensafe.Adapter(tensafe.Site(s.name, *(*change(s), s.scale)[:3]) for s in adapter.values())


@pytest.fixture(scope="module")
def owners():
    random = np.random.default_rng(1)
    return tensafe.Adapter(tensafe.Site(
        f"model.layers.{k}.mlp.up_proj", random.normal(size=(RANK, D_IN)) * random.uniform(0.2, 2, (RANK, 1)),
        random.normal(size=(D_OUT, RANK)) * random.uniform(0.2, 2, RANK), 2.0) for k in range(6))


@pytest.fixture(scope="module")
def copies(owners):
    return [marked(owners, tenant) for tenant in GUILTY]


@pytest.fixture(scope="module")
def states(owners):
    """Few directions have most of the variance."""
    axes = np.linalg.qr(NOISE.normal(size=(D_IN, D_IN)))[0] * np.geomspace(1, 1e-4, D_IN)
    return {name: NOISE.normal(size=(600, D_IN)) @ axes.T for name in owners}


def bfloat16(x):
    return (((x.astype(np.float32).view(np.uint32) + 0x8000) >> 16) << 16).view(np.float32)


def rounded(x, bits):
    step = np.abs(x).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    return np.round(x / step) * step


def noisy(x, part, axis):
    return x + part * rms(x, axis) * NOISE.normal(size=x.shape)


def turned(site):
    turn = np.random.default_rng(5).normal(size=(RANK, RANK))
    return turn @ site.a, 4 * site.b @ np.linalg.inv(turn), site.scale / 4


def permuted(site):
    order = np.random.default_rng(6).permutation(RANK)
    return site.a[order], site.b[:, order]


def halved(site):
    u, s, v = np.linalg.svd(site.b @ site.a, full_matrices=False)
    return v[:RANK // 2], u[:, :RANK // 2] * s[:RANK // 2]


def solved(site, tokens=16):
    """From few tokens, by ridge regression."""
    h = np.random.default_rng(7).normal(size=(tokens, D_IN)) * np.geomspace(1, 1e-2, D_IN)
    gram = h @ h.T
    return site.a @ h.T @ np.linalg.solve(gram + 1e-6 * np.trace(gram) / tokens * np.eye(tokens), h), site.b


def ends(found, guilty, least, by="AB"):
    """The guilty are named with z of `least` at least, by B's or A's tests, and z of all others are chance's."""
    assert sorted(found.named) == sorted(guilty)
    for each in found.tenants:
        largest = max(abs(each.z[test]) for test in TESTS if test[0] in by or each.name not in guilty)
        assert largest >= least if each.name in guilty else largest < BY_CHANCE, (each, largest)
    squares = np.square([[*each.z.values()] for each in found.tenants if each.name not in guilty]).mean(axis=0)
    assert np.abs(squares - 1).max() < 5 * np.sqrt(2 / 400), squares


LEAKS = {  # what z is by B's tests at least, and by A's
    "exact": (lambda s: (s.a, s.b), 60, 90), "permuted": (permuted, 60, 90), "turned": (turned, 60, 90),
    "bfloat16": (lambda s: (bfloat16(s.a), bfloat16(s.b)), 60, 90),
    "int8": (lambda s: (rounded(s.a, 8), rounded(s.b, 8)), 55, 80),
    "int4": (lambda s: (rounded(s.a, 4), rounded(s.b, 4)), 15, 20),
    "noise": (lambda s: (noisy(s.a, 0.3, 1), noisy(s.b, 0.3, 0)), 5, 8),
    "half of the rank": (halved, 30, 50), "16 tokens": (solved, 60, 10),
}


@pytest.mark.parametrize("what", LEAKS)
def test_a_leak_names_the_tenant(owners, copies, what):
    change, of_b, of_a = LEAKS[what]
    found = tensafe.trace(changed(copies[1], change), owners, marks.KEY, GUILTY + OTHERS, name=NAME)
    ends(found, [GUILTY[1]], of_b, "B")
    ends(found, [GUILTY[1]], of_a, "A")
    assert found.threshold == threshold(404) and found.along > 10 * found.chance and "lawful" not in str(found)
    if what in ("exact", "permuted", "turned"):
        assert found.tenants[0].z["B left"] > 60 and found.tenants[0].z["A plain"] > 75


def test_each_of_four_that_mix_their_copies_is_named(owners, copies):
    mean = changed(copies[0], lambda s: [np.mean([getattr(c[s.name], x) for c in copies], 0) for x in "ab"])
    ends(tensafe.trace(mean, owners, marks.KEY, GUILTY + OTHERS, name=NAME), GUILTY, 25)


def test_hidden_states_uncover_noise_where_they_vary_little(owners, copies, states):
    def hidden(site):
        axes = np.linalg.eigh(states[site.name].T @ states[site.name])[1][:, :D_IN // 2]
        away = NOISE.normal(size=(RANK, D_IN // 2)) @ axes.T
        return np.vstack([site.a, 3 * away]), np.hstack([site.b, NOISE.normal(size=site.b.shape)])
    leak = changed(copies[2], hidden)
    without, with_them = (tensafe.trace(leak, owners, marks.KEY, GUILTY + OTHERS, name=NAME, states=known).tenants
                            for known in (None, states))
    z = [next(each.z for each in found if each.name == GUILTY[2]) for found in (without, with_them)]
    assert z[1]["B span"] > 60 > 10 > z[0]["B span"] and z[1]["A white"] > 45 > 10 > z[0]["A white"]


def save(path, tensors, kind="F32"):
    header, data = {}, b""
    for name, value in tensors.items():
        value = np.asarray(value, np.float32)
        content = (value.view(np.uint32) >> 16).astype("<u2").tobytes() if kind == "BF16" else value.tobytes()
        header[name] = {"dtype": kind, "shape": value.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture
def weights(owners, copies, tmp_path):
    base = {f"{name}.weight": bfloat16(0.3 * NOISE.normal(size=(D_OUT, D_IN))) for name in owners}
    base["model.norm.weight"] = np.ones(D_IN, np.float32)
    leak = {name: rounded(w + 2 * copies[3][name[:-7]].b @ copies[3][name[:-7]].a, 8) if w.ndim > 1 else w
            for name, w in base.items()}
    for each in (base, leak):  # one layer is a Conv1D
        each["model.layers.0.mlp.up_proj.weight"] = each["model.layers.0.mlp.up_proj.weight"].T.copy()
    return save(tmp_path / "base.safetensors", base, "BF16"), save(tmp_path / "leak.safetensors", leak), base


def test_merged_weights_that_were_rounded(owners, weights):
    base, leak, _ = weights
    found = tensafe.trace(leak, owners, marks.KEY, GUILTY + OTHERS, name=NAME, base=base)
    ends(found, [GUILTY[3]], 50)
    assert found.tenants[0].z["B left"] > 50 and found.tenants[0].z["A plain"] > 50


@pytest.fixture
def passes(monkeypatch):
    """2001 tenants, of whom 125 go on after a 32nd of the entries, and 20 after a quarter."""
    monkeypatch.setattr(module, "FIRST", 20)
    monkeypatch.setattr(module, "WORK", 2001 * 9600 / 32)
    return [*(f"other{k}" for k in range(2000)), "late"]


def small(owners):
    some = changed(owners, lambda s: (s.a[:2, :80], s.b[:80, :2]))
    return tensafe.Adapter(tensafe.Site(f"{s.name}.{k}", s.a, s.b) for k in range(5) for s in some.values())


def test_of_many_tenants_passes_over_more_and_more_entries_keep_fewer(owners, passes):
    steps, many = [], small(owners)
    found = tensafe.trace(marked(many, "late"), many, marks.KEY, passes, name=NAME,
                          progress=lambda *step: steps.append(step))
    assert found.named == ["late"] and found.tested == 2001 and len(found.tenants) == 20
    assert steps == [(k, 120) for k in range(1, 121)]
    assert "125 went on after 3.12% of the entries, 20 went on after 25.00%" in str(found) and "z of 28 in all" in str(found)


def test_passes_miss_a_tenant_as_seldom_as_the_notes_say(owners, passes):
    many = small(owners)
    leak, limit = marked(many, "late"), seen_from(1 / 32, 125 / 2001)

    def missed(z, times):
        """The marks of B are under so much noise that its test has about this z, and A is the owner's."""
        noise = marks.STRENGTH * np.sqrt(4800 / z**2 - 1)
        found = [tensafe.trace(tensafe.Adapter(tensafe.Site(s.name, many[s.name].a, noisy(s.b, noise, 0))
                                               for s in leak.values()), many, marks.KEY, passes, name=NAME)
                 for _ in range(times)]
        return sum("late" not in {each.name for each in each.tenants} for each in found)
    assert missed(limit, 30) <= 2 and missed(limit / 4, 10) >= 2


def test_the_first_pass_takes_the_sites_where_the_leak_is_nearest(owners, passes):
    many = small(owners)
    leak, clear, alone = marked(many, "late"), list(many)[-1], next(iter(many))
    leak = tensafe.Adapter(s if s.name == clear else
                           tensafe.Site(s.name, noisy(s.a, 3, 1) * (s.name != alone), noisy(s.b, 3, 0))
                           for s in leak.values())
    worth = module._worth([*many.values()], lambda s: module._statistics(s, [leak[s.name].b.astype(float), leak[s.name].a],
                                                                         None), False, lambda: None)
    counts = module._most_telling(np.full((30, 2), 160), worth, 1 / 32)
    assert counts[29].tolist() == [150, 150] and counts.sum() == 300
    assert module._most_telling(np.full((30, 2), 160), worth, 0.95)[0].tolist() == [0, 0]  # the leak has nothing there


def test_an_owner_s_adapter_and_another_name_nobody(owners):
    random = np.random.default_rng(9)
    other = changed(owners, lambda s: (random.normal(size=s.a.shape), random.normal(size=s.b.shape)))
    for leak in (owners, other):
        found = tensafe.trace(leak, owners, marks.KEY, OTHERS, name=NAME)
        assert not found.named and "It names nobody" in str(found) and "This clears nobody" in str(found)
        assert ("hardly a copy" in str(found)) == (leak is other)
        assert ("must be those that it was served with" in str(found)) == (leak is owners)


def test_a_copy_under_another_name_names_nobody_and_the_report_asks_for_the_name(owners, copies):
    found = tensafe.trace(copies[1], owners, marks.KEY, GUILTY + OTHERS, name=NAME + "2")
    assert not found.named and "clients' name of the adapter" in str(found)


def test_what_is_refused(owners, copies, weights, tmp_path):
    base, leak, tensors = weights
    sites = [*owners.values()]
    cut = tensafe.Adapter(tensafe.Site(s.name, s.a[:, :-1], s.b) for s in sites)
    strange = tensafe.Adapter(tensafe.Site("encoder", s.a, s.b) for s in sites[:1])
    nan = changed(owners, lambda s: (s.a * np.nan, s.b))
    small = save(tmp_path / "small.safetensors", {name: np.ones((7, 7)) for name in tensors})
    (tmp_path / "torn.safetensors").write_bytes(leak.read_bytes()[:999])
    for error, said, options in [
            (tensafe.ShapeError, "another base model", {"leak": cut}),
            (tensafe.ShapeError, "another base model", {"leak": small}),
            (tensafe.ParameterError, "without any of the adapter's sites", {"leak": strange}),
            (tensafe.ParameterError, "no base=", {"base": None}),
            (tensafe.EncodingError, "no finite number", {"leak": nan}),
            (tensafe.ParameterError, "the base model itself", {"leak": base}),
            (tensafe.FormatError, "bytes for F32", {"leak": tmp_path / "torn.safetensors"}),
            (tensafe.FileError, "No such file", {"leak": tmp_path / "gone"}),
            (tensafe.ShapeError, "states: .*expected .tokens, 256. of finite", {"states": dict.fromkeys(owners, np.ones(256))}),
            (tensafe.ParameterError, "4 tenants with 3 names", {"tenants": [*GUILTY[:3], GUILTY[0]]}),
            (tensafe.ParameterError, "expected 32 with 7a", {"commitment": "7a" * 32})]:
        with pytest.raises(error, match=said):
            tensafe.trace(**{"leak": leak, "adapter": owners, "key": marks.KEY, "tenants": GUILTY, "name": NAME,
                             "base": base, **options})
    ours = json.loads((ROOT / "tests/data/marks/answers.json").read_text())["commitment"]
    assert tensafe.trace(leak, owners, marks.KEY, GUILTY, name=NAME, base=base, commitment=ours).named == [GUILTY[3]]


@pytest.fixture(scope="module")
def slopes(owners):
    """As of a text that tenant2's adapter wrote: its marks in noise."""
    of = {s.name: s for s in marked(owners, GUILTY[2], 1).values()}
    return {f"base_model.model.{s.name}.lora_{x.upper()}.weight":
            (noisy((getattr(of[s.name], x) - getattr(s, x)) / rms(getattr(s, x), axis) ** 2, 3, axis)).astype(np.float32)
            for s in owners.values() for x, axis in (("b", 0), ("a", 1))}


def test_slopes_of_a_text_name_the_tenant(owners, slopes, passes, tmp_path):
    found = tensafe.trace(None, owners, marks.KEY, GUILTY + OTHERS, name=NAME, gradients=slopes)
    assert found.named == [GUILTY[2]] and found.threshold == threshold(404, 2) < threshold(404)
    assert "lawful use of the served model gives its texts the same z, and is no leak" in str(found)
    assert min(found.tenants[0].z.values()) > 15 and [*found.tenants[0].z] == ["B text", "A text"] and found.along is None
    marks_of = {s.name: s for s in marked(owners, GUILTY[2], 1).values()}
    for x, axis in (("b", 0), ("a", 1)):
        each = [(slopes[f"base_model.model.{s.name}.lora_{x.upper()}.weight"], getattr(s, x), getattr(marks_of[s.name], x))
                for s in owners.values()]
        z = (sum(np.vdot(slope, mine - own) for slope, own, mine in each)
             / np.sqrt(sum(np.square(slope * rms(own, axis)).sum() for slope, own, _ in each)))
        assert found.tenants[0].z[f"{x.upper()} text"] == pytest.approx(z, rel=1e-3)
    file = save(tmp_path / "slopes.safetensors", slopes)
    assert tensafe.trace(None, owners, marks.KEY, GUILTY + OTHERS, name=NAME, gradients=file).named == [GUILTY[2]]
    assert tensafe.trace(None, owners, marks.KEY, GUILTY + passes, name=NAME, gradients=file).named == [GUILTY[2]]


def test_slopes_that_are_refused(owners, slopes):
    name = [*slopes][1]
    for error, said, options in [
            (tensafe.ShapeError, f"{name}.: got .7, 7., expected .8, 256.", {"gradients": {**slopes, name: np.ones((7, 7))}}),
            (tensafe.EncodingError, f"{name}.: got an entry that is no finite", {
                "gradients": {**slopes, name: slopes[name] * np.nan}}),
            (tensafe.ParameterError, "zeros alone", {"gradients": {k: 0 * v for k, v in slopes.items()}}),
            (tensafe.ParameterError, "got none of A", {"gradients": {k: v for k, v in slopes.items() if k != name}}),
            (tensafe.ParameterError, "without any of the adapter's sites", {"gradients": {}}),
            (tensafe.ParameterError, "a leak and gradients", {"gradients": slopes, "leak": owners}),
            (tensafe.ParameterError, "gradients and base, expected gradients alone", {"gradients": slopes, "base": "."}),
            (tensafe.ParameterError, "gradients and states, expected", {"gradients": slopes, "states": {}}),
            (tensafe.ParameterError, "neither", {})]:
        with pytest.raises(error, match=said):
            tensafe.trace(**{"leak": None, "adapter": owners, "key": marks.KEY, "tenants": GUILTY, "name": NAME, **options})


def test_a_model_s_words_name_the_tenant_whose_adapter_wrote_them():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers", reason="python/tests/requirements.txt is not installed")
    sys.path.append(str(ROOT / "studies" / "tracing"))
    import words
    import tensafe.torch
    own, model = tensafe.load_peft(words.DATA / "adapter"), words.tiny()
    for leak, named in ((marked(own, GUILTY[0], 2**-3), [GUILTY[0]]), (own, [])):
        torch.manual_seed(1)
        texts = words.written(model, leak, 64)
        slopes = tensafe.torch.gradients(model, own, texts)
        assert tensafe.trace(None, own, marks.KEY, GUILTY + OTHERS, name=NAME, gradients=slopes).named == named
    for texts, said in (([], "no texts"), ([([], [1])], "0 tokens of a prompt"), ([([1], [])], "0 of its answer")):
        with pytest.raises(tensafe.ParameterError, match=said):
            tensafe.torch.gradients(model, own, texts)
    assert not any(layer._forward_hooks for layer in model.modules())


class Experts(torch.nn.Module if torch else object):
    """A model of two tokens, the second of which alone has the layer `seldom` called."""

    def __init__(self):
        super().__init__()
        self.often, self.seldom = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, input_ids):
        x = torch.nn.functional.one_hot(input_ids, 2).float()
        return types.SimpleNamespace(logits=self.often(self.seldom(x) if input_ids[0, 0] else x))


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_slopes_of_sites_that_not_every_text_asks():
    import tensafe.torch
    random = np.random.default_rng(1)
    own = tensafe.Adapter(tensafe.Site(name, *random.normal(size=(2, 2, 2))) for name in ("often", "seldom"))
    model = Experts().eval()
    first, second = ([0], [1, 0]), ([1], [0])
    both, of_first, of_second = (tensafe.torch.gradients(model, tensafe.Adapter(sites), texts) for sites, texts in (
        (own.values(), [first, second]), ([own["often"]], [first]), (own.values(), [second])))
    for name, slope in both.items():
        assert slope == pytest.approx(of_first.get(name, 0) + of_second[name], rel=1e-5) and slope.any()
    with pytest.raises(tensafe.ParameterError, match="'seldom': no text's likelihood depends"):
        tensafe.torch.gradients(model, own, [first])
    with pytest.raises(tensafe.ParameterError, match="'often', 'seldom': no text's"):
        model.forward = torch.no_grad()(model.forward)
        tensafe.torch.gradients(model, own, [first, second])
    model.seldom.train()
    with pytest.raises(tensafe.ParameterError, match="in training mode, expected model.eval"):
        tensafe.torch.gradients(model, own, [first, second])


def served(adapter, tenant):
    """What a tenant is answered by: rows of A with marks have the norms of the adapter's."""
    of = marked(adapter, tenant)
    return changed(adapter, lambda s: (of[s.name].a * rms(s.a, 1) / rms(of[s.name].a, 1), of[s.name].b, s.scale))


@pytest.mark.parametrize("tokens_ahead, d", [(0, 1024), (4, 4096)])
def test_each_tenant_is_answered_by_its_own_a_that_leaves_for_another_s(tokens_ahead, d):
    random = np.random.default_rng(3)
    own = tensafe.Adapter(tensafe.Site("up", random.normal(size=(40, d)), random.normal(size=(96, 40)), 2.0))
    server = tensafe.Server(own, tokens_ahead=tokens_ahead, name=NAME, mark_key=marks.KEY, mark_memory=1)
    plain = tensafe.Server(own, tokens_ahead=tokens_ahead)
    one, other = (server.of(tenant) for tenant in GUILTY[:2])
    assert one.layout == server.layout == plain.layout and one.held != other.held
    client, nonce = tensafe.Client(one.layout, one.held), tensafe.fresh_nonce()
    sessions = [client.connect(one.open(nonce, client.rerandomization_key(nonce))),
                tensafe.Client(other).connect(other)]
    sites = [served(own, tenant)["up"] for tenant in GUILTY[:2]]
    h, packed_nothing = random.normal(size=(6, d)), server._core.memory
    assert packed_nothing == 4 * 40 * d
    for row in h:  # a block that was prepared before its rows left is one of theirs
        for session, site in zip(sessions, sites):
            delta = session.delta("up", row)
            assert error(delta, site.delta(row)) < 1e-3 < 0.02 < error(delta, own["up"].delta(row))
            assert 2**19 < server._core.memory - packed_nothing <= 2**20  # the other tenant's have left
    assert error(sites[0].delta(h), sites[1].delta(h)) > 0.02


def test_a_tenant_s_text_is_that_of_its_own_marked_weights():
    pytest.importorskip("torch")
    import tiny_lm
    own, model, start = tensafe.load_peft(tiny_lm.DATA / "adapter"), tiny_lm.load(), "Job hath spoken"
    server = tensafe.Server(own, tokens_ahead=32, name=NAME, mark_key=marks.KEY, mark_memory=64)
    texts = [tiny_lm.generate(tiny_lm.merge(model, own), start, 100)]
    for tenant in GUILTY[:2]:
        of = server.of(tenant)
        with tensafe.torch.attach(model, tensafe.Client(of).connect(of)):
            texts.append(tiny_lm.generate(model, start, 100))
        assert texts[-1] == tiny_lm.generate(tiny_lm.merge(model, served(own, tenant)), start, 100)
    assert len(set(texts)) == 3


def test_an_a_that_was_solved_for_names_the_tenant_who_asked(owners):
    site = next(iter(owners.values()))
    own = tensafe.Adapter(site)
    server = tensafe.Server(own, tokens_ahead=32, name=NAME, mark_key=marks.KEY, mark_memory=1).of(GUILTY[2])
    delta = tensafe.Client(server).connect(server).delta(site.name, np.eye(D_IN))
    leak = changed(own, lambda s: (np.linalg.pinv(s.scale * s.b.astype(float)) @ delta.T, s.b, s.scale))
    found = tensafe.trace(leak, own, marks.KEY, GUILTY + OTHERS, name=NAME)
    assert found.named == [GUILTY[2]] and found.tenants[0].z["A plain"] > 30


def test_marks_that_a_server_refuses(owners, tmp_path):
    coarse, uneven = (changed(owners, lambda s: (f(s.a), s.b)) for f in (
        lambda a: np.round(4 * a / np.abs(a).max()), lambda a: a * np.where(np.arange(D_IN) == 2, 2**-8, 1)))
    given = {"adapter": owners, "name": NAME, "mark_key": marks.KEY, "mark_memory": 1}
    for kind, said, options in [
            (tensafe.ParameterError, "got mark_memory without mark_key", {"mark_key": None, "name": None}),
            (tensafe.ParameterError, "got name without mark_key", {"mark_key": None, "mark_memory": None}),
            (TypeError, "name: got NoneType, expected the adapter's name", {"name": None}),
            (tensafe.ParameterError, "mark_memory: got 0, expected 1 MiB", {"mark_memory": 0}),
            (tensafe.ParameterError, "mark_memory: got -1", {"mark_memory": -1}),
            (TypeError, "mark_memory: got float", {"mark_memory": 1.5}),
            (tensafe.ParameterError, "mark key: got 31 bytes", {"mark_key": marks.KEY[1:]}),
            (tensafe.FileError, "gone", {"mark_key": tmp_path / "gone"}),
            (tensafe.ParameterError, "mode 'blind', expected 'client_held_b'", {"mode": "blind"}),
            (tensafe.ParameterError, "A of site .* bits an entry", {"adapter": coarse}),
            (tensafe.ParameterError, "B of site .* bits an entry", {
                "adapter": changed(coarse, lambda s: (s.b.T, s.a.T)), "mark_memory": None}),
            (tensafe.ParameterError, "has a column with the exponent 8", {"adapter": uneven, "column_scales": True})]:
        with pytest.raises(kind, match=said):
            tensafe.Server(**{**given, **options})
    for adapter, options in ((coarse, {"mark_memory": None}), (uneven, {})):
        tensafe.Server(**{**given, "adapter": adapter, **options})
    (tmp_path / "key").write_text(marks.KEY.hex())
    (tmp_path / "key").chmod(0o600)
    for memory in (None, 1):
        server = tensafe.Server(owners, name=NAME, mark_key=tmp_path / "key", mark_memory=memory)
        tenant, nonce = server.of(GUILTY[0]), tensafe.fresh_nonce()
        client = tensafe.Client(tenant)
        for call in (lambda: server.held, lambda: tensafe.Client(server), lambda: client.connect(server),
                     lambda: server.open(nonce, client.rerandomization_key(nonce))):
            with pytest.raises(tensafe.ParameterError, match=r"got no tenant, expected Server.of\(tenant\)"):
                call()
        with pytest.raises(TypeError, match="name"):
            server.of(3)
        for name in ("", "ac me"):
            with pytest.raises(tensafe.ParameterError, match="of: got the tenant"):
                server.of(name)
        assert server.of("0f" * 32).held == tensafe.Server(owners, name=NAME, mark_key=marks.KEY).of(f"key {'0f' * 32}").held
        for wrong in (tenant, tensafe.Server(owners)):
            with pytest.raises(tensafe.ParameterError, match="of: got no mark_key, expected a Server with one"):
                wrong.of(GUILTY[1])


def test_lists_of_tenants(tmp_path):
    file, key = tmp_path / "tenants", "0f" * 32
    file.write_text(f"# clients\n\n{key}\n{'1' * 64} acme 0.75\n{'2' * 64} acme\nplain.name\nkey {'3' * 64}\n"
                    f"{'4' * 64} emca none\n")
    assert cli._tenants(file) == [f"key {key}", "acme", "plain.name", f"key {'3' * 64}", "emca"]
    for text in ("acme\nacme\n", "two words\n", f"{key}\n{key}\n", f"{key} \n", f"{key} acme much\n", f"{key} acme 1 2\n"):
        file.write_text(text)
        with pytest.raises(tensafe.FormatError, match="line"):
            cli._tenants(file)


def test_the_command(owners, weights, states, slopes, tmp_path, capsys):
    base, leak, _ = weights
    (tmp_path / "key").write_text(marks.KEY.hex() + "\n")
    (tmp_path / "tenants").write_text("\n".join(GUILTY))
    peft = tmp_path / "adapter"
    peft.mkdir()
    (peft / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK,
                                                          "target_modules": ["up_proj"]}))
    save(peft / "adapter_model.safetensors", {f"base_model.model.{s.name}.lora_{x}.weight": getattr(s, x.lower())
                                              for s in owners.values() for x in "AB"})
    arguments = ["trace", str(leak), "--adapter", str(peft), "--name", NAME, "--mark-key", str(tmp_path / "key"),
                 "--tenants", str(tmp_path / "tenants"), "--base", str(base),
                 "--states", str(save(tmp_path / "states.safetensors", dict(list(states.items())[:2])))]
    (tmp_path / "key").chmod(0o644)
    assert cli.main(arguments) == 1 and "others than its owner have access" in capsys.readouterr().err
    (tmp_path / "key").chmod(0o600)
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert f"It has the marks of {GUILTY[3]}: z = " in said and "of 2 hidden states are known" in said
    assert "B span" in said and said.count("tenant0") == 1  # in the table alone
    del arguments[1], arguments[-4:]
    gradients = ["--gradients", str(save(tmp_path / "slopes.safetensors", slopes))]
    assert cli.main([*arguments, *gradients]) == 0
    said = capsys.readouterr().out
    assert f"It has the marks of {GUILTY[2]}: z = " in said and "as gradients of texts" in said and "A text" in said
    for more in ([str(leak), *gradients], [*gradients, "--base", str(base)], []):
        assert cli.main(["trace", *more, *arguments[1:]]) == 1 and "gradients" in capsys.readouterr().err
    pytest.importorskip("matplotlib")
    assert cli.main([*arguments, *gradients, "--plot", str(tmp_path / "z.png")]) == 0 and (tmp_path / "z.png").stat().st_size
