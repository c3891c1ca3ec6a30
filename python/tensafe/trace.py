"""Tells by its marks whose copy of an adapter a leak is: see `trace`."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import hmac
import math
import os
import pathlib
import re
import statistics
from typing import Callable, Iterable, List, Mapping, Optional, Union

import numpy as np

from . import _core
from ._safetensors import Tensors
from .adapter import Adapter, expect, load_peft
from .errors import EncodingError, FormatError, ParameterError, ShapeError

_Path = Union[str, "os.PathLike[str]"]
TESTS_OF_B = ("B span", "B left", "B fit")
TESTS = (*TESTS_OF_B, "A plain", "A fit", "A white", "A rows", "A flat")
MISTAKE = 1e-9  # the probability that anybody is named who took no part
TESTS_OF_TEXT = ("B text", "A text")
FIRST = 1000  # so many tenants at least are compared in all entries
WORK = 2e11  # entries times tenants of the first pass: some minutes on two cores
FEWER, MORE = 16, 8  # the next pass has a 16th of the tenants and 8 times the entries


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A tenant. z: for each test, how many deviations of chance the leak is on the side of the tenant's marks."""

    name: str
    z: Mapping[str, float]
    named: bool

    @property
    def test(self) -> str:
        """The test of the largest |z|."""
        return max(self.z, key=lambda test: abs(self.z[test]))


@dataclasses.dataclass(frozen=True)
class Trace:
    """What `trace` found; as text, a report.

    tenants: the most suspicious first, of so many (tested) at most FIRST. threshold: the |z| that names a tenant.
    along: the share of the leak's change that lies along the adapter's own A and B, of texts None; chance: that of any
    change of weights. notes: what was compared, in sentences.
    """

    tenants: List[Suspect]
    tested: int
    threshold: float
    along: Optional[float]
    chance: Optional[float]
    notes: List[str]

    @property
    def named(self) -> List[str]:
        """The tenants whose matrices are in the leak."""
        return [suspect.name for suspect in self.tenants if suspect.named]

    def __str__(self) -> str:
        said = [f"{each.name}: z = {each.z[each.test]:.1f} by {each.test}" for each in self.tenants]
        return "\n".join([
            *self.notes, *([] if self.along is None else [
                f"Of what it changes in the base model, {self.along:.2%} lies along the adapter's own A and B; "
                f"chance puts {self.chance:.2%} there"
                + (": it is hardly a copy of this adapter." if self.along < 10 * self.chance and not self.named else ".")]),
            *(f"It has the marks of {text}." for text in said[:len(self.named)]),
            *([] if self.named else [f"It names nobody; nearest is {said[0]}."]),
            f"A tenant is named from |z| = {self.threshold:.2f} on. That anybody of {self.tested:,} passes it without a "
            f"part in this leak has probability {MISTAKE:.0e} at most, whatever the leak is.",
            "So who made it had the B, or by a mark in A the answers, that were made for a tenant. "
            + ("The tenant's lawful use of the served model gives its texts the same z, and is no leak. "
               if self.along is None else "")
            + "This does not prove that the tenant gave them away: they may have been stolen, and who has the mark key can "
            "make them. See the logs."
            if self.named else "This clears nobody: noise, few sites, and training on answers in words hide marks"
            + (", and clients' name of the adapter, the mark key and the tenants must be those that it was served with."
               if self.along is None or self.along > 0.1 else ".")])


def threshold(tenants: int, tests: int = len(TESTS)) -> float:
    """Returns the |z| that any of so many tenants, who took no part, passes with probability MISTAKE at most."""
    return math.sqrt(2.0064 * math.log(2 * tenants * tests / MISTAKE))


def seen_from(share: float, kept: float, tests: int = len(TESTS)) -> float:
    """Returns the |z| in all entries from which on a pass over this share of them misses a tenant once in 100 times.

    kept: the share of tenants that go on. An innocent is among them by the largest of so many normal numbers. The
    entries of a pass say no less than others, so that the tenant has sqrt(share) of z there, with deviation 1.
    """
    normal = statistics.NormalDist()
    return (normal.inv_cdf(1 - kept / (2 * tests)) + normal.inv_cdf(0.99)) / math.sqrt(share)


def trace(leak: "Adapter | _Path | None", adapter: "Adapter | _Path", key: "bytes | _Path", tenants: Iterable[str], *, name: str,
          base: Optional[_Path] = None, states: "Optional[Mapping[str, np.ndarray] | _Path]" = None,
          gradients: "Optional[Mapping[str, np.ndarray] | _Path]" = None, commitment: Optional[str] = None,
          progress: Callable[[int, int], object] = lambda done, total: None) -> Trace:
    """Tells whose copy of an adapter a leak is (docs/service.md, "Whose copy it is").

    leak: an adapter, its PEFT directory, or merged weights: a safetensors file or a folder of them; then `base` has
    those of the base model; or None, with gradients. adapter: the owner's, without marks. name: what clients call it.
    key: the file of the mark key, or its 32 bytes. commitment: what was published of it, 64 digits.
    tenants: their names, each once; of a client without one, "key " and its 64 digits.
    states: hidden states by site or by the input that sites share, [tokens, d_in], from texts of the owner's, or a
    safetensors file of them. With them noise hides less where hidden states vary little.
    gradients: in place of a leak, base and states, of the log likelihood that the owner's own model with the adapter
        gives to answers of the suspected one, with respect to A and B, under PEFT's names, as
        `tensafe.torch.gradients` computes them; or a safetensors file. The answers must be nobody's choice who knows
        marks.
    progress: is called with the numbers of sites that are done, and of all, over all passes.
    Where tenants times entries pass WORK, passes over more and more entries keep fewer and fewer tenants; the notes say
    which, and which z may be missed. First come the sites where the leak is nearest to the adapter.
    Raises ParameterError for a leak that has no site of the adapter or changes nothing, repeated tenants, and another
    key than the one committed to; ShapeError for a leak of another base model; FileError, FormatError, EncodingError.
    """
    own = adapter if isinstance(adapter, Adapter) else load_peft(adapter)
    tenants = list(tenants)
    if not tenants or len(set(tenants)) < len(tenants):
        raise ParameterError(f"trace: got {len(tenants)} tenants with {len(set(tenants))} names, expected each once")
    key, ours = key_of(key, commitment)
    seeds = [mark_seed(key, name, tenant) for tenant in tenants]
    if (leak is None) == (gradients is None):
        raise ParameterError(f"trace: got {'neither a leak nor' if leak is None else 'a leak and'} gradients, expected one")
    if gradients is not None and not (base is states is None):
        raise ParameterError(f"trace: got gradients and {'states' if base is None else 'base'}, expected gradients alone: "
                             "they are of texts, and not of weights")
    if gradients is None:
        tests, changes = TESTS, _changes(leak, own, base)
        axes = _axes_of(states if isinstance(states, Mapping) else Tensors(states) if states else {})
    else:
        tests, changes = TESTS_OF_TEXT, _gradients(gradients)
    sites = [site for site in own.values() if site.name in changes]
    if not sites:
        raise ParameterError(f"trace: got a leak without any of the adapter's sites, as {next(iter(own))!r}; it has "
                             + (", ".join(map(repr, list(changes)[:2])) or "none that the base has too"))

    def of(site):
        return (_statistics(site, changes[site.name](), axes(site)) if gradients is None else
                (*changes[site.name](site), 0, 0))

    whole = np.array([[site.b.size, site.a.size] for site in sites])
    share = WORK / (len(tenants) * whole.sum())
    kept, passes, done = np.arange(len(tenants)), [], 0
    shares = [] if len(tenants) <= FIRST or share >= 1 else [share]
    while shares and len(tenants) / FEWER**len(shares) > FIRST and shares[-1] * MORE < 1:
        shares.append(shares[-1] * MORE)
    total = len(sites) * (len(shares) + 1 + bool(shares))

    def step():
        nonlocal done
        done += 1
        progress(done, total)

    worth = _worth(sites, of, gradients is not None, step) if shares else None
    for share in shares:
        z = _scores(sites, of, _most_telling(whole, worth, share), len(tests), [seeds[k] for k in kept], step)[0]
        count = max(FIRST, len(kept) // FEWER)
        kept = kept[np.argsort(-np.abs(z).max(axis=1))[:count]]
        passes.append((share, count))
    z, along, chance = _scores(sites, of, whole, len(tests), [seeds[k] for k in kept], step)
    limit = threshold(len(tenants), len(tests))
    best = np.argsort(-np.abs(z).max(axis=1))[:FIRST].tolist()
    found = [Suspect(tenants[kept[k]], dict(zip(tests, z[k].tolist())), bool(np.abs(z[k]).max() > limit)) for k in best]
    notes = [f"The leak has {len(sites)} of the adapter's {len(own)} sites" + (
                 f"; of {sum(axes.knows(site) for site in sites)} hidden states are known." if gradients is None else
                 ", as gradients of texts."),
             f"The mark key has the commitment {ours}. To others it proves something if that was published "
             "before the first client came."]
    if passes:
        least = max(seen_from(share, count / len(tenants), len(tests)) for share, count in passes)
        notes.append(f"Of {len(tenants)} tenants " + ", ".join(f"{count} went on after {share:.2%} of the entries"
                                                               for share, count in passes)
                     + f". Who has a z of {least:.0f} in all entries was missed with probability 1 %; of less, more often.")
    return Trace(found, len(tenants), limit, along, chance, notes)


def mark_seed(key, adapter, tenant):
    """As keystore::mark_key::seed_of."""
    names = [expect(name, str, "name", "a name").encode() for name in (adapter, tenant)]
    message = b"tensafe mark 1\n" + b"".join(len(name).to_bytes(8, "little") + name for name in names)
    return hmac.digest(key, message, "sha256")


def key_of(key, commitment):
    """Returns the key, and the commitment to it, which must be the one that is given, if any."""
    if not isinstance(key, bytes):
        digits = _core.read_private_file(os.fspath(key))
        if not re.fullmatch(b"[0-9a-f]{64}\n?", digits):
            raise FormatError(f"{os.fspath(key)}: expected 64 lower-case hexadecimal digits")
        key = bytes.fromhex(digits.decode())
    ours = hashlib.sha256(b"tensafe mark key 1\n" + key).hexdigest()
    if len(key) != 32 or commitment not in (None, ours):
        raise ParameterError(f"mark key: got {len(key)} bytes with the commitment {ours}, expected 32"
                             + (f" with {commitment}" if commitment else ""))
    return key, ours


def _changes(leak, own, base):
    """Maps sites to functions that return matrices whose product is the leak's change D, for the adapter's scale."""
    if not isinstance(leak, Adapter) and (pathlib.Path(leak) / "adapter_config.json").exists():
        leak = load_peft(leak)
    if isinstance(leak, Adapter):
        return {name: functools.partial(_factors, site, own.get(name)) for name, site in leak.items()}
    if base is None:
        raise ParameterError(f"trace: {os.fspath(leak)}: got no PEFT directory, and no base= of merged weights")
    after, before = Tensors(leak), Tensors(base)
    return {name.removesuffix(".weight"): functools.partial(_difference, after, before, name, own)
            for name in after if name in before}


def _factors(site, own):
    _check_shape(site.name, (site.d_out, site.d_in), own)
    return [site.b.astype(np.float64) * (site.scale / own.scale), site.a.astype(np.float64)]


def _difference(after, before, name, own):
    own = own[name.removesuffix(".weight")]
    w, base = after[name], before[name]
    turned = w.shape == (own.d_in, own.d_out) != (own.d_out, own.d_in)  # of a Conv1D
    _check_shape(name, w.T.shape if turned else w.shape, own)
    _check_shape(name, base.T.shape if turned else base.shape, own)
    change = (w - base) / np.float32(own.scale)
    return [change.T if turned else change]


def _check_shape(name, got, own):
    if got != (own.d_out, own.d_in):
        raise ShapeError(f"leak: {name!r}: got {list(got)}, expected {[own.d_out, own.d_in]}: it is of another base model")


def _axes_of(states):
    """Returns a function of a site: the eigenvectors of its inputs' covariance, and their deviations, or None."""
    @functools.lru_cache(1)
    def axes(name, d):
        h = np.asarray(states[name], np.float64)
        if h.ndim != 2 or h.shape[1] != d or not np.isfinite(h).all():
            raise ShapeError(f"states: {name!r}: got {list(h.shape)}, expected [tokens, {d}] of finite numbers")
        values, vectors = np.linalg.eigh(h.T @ h)
        kept = values > 1e-10 * values[-1]
        return vectors[:, kept], np.sqrt(values[kept])

    def known(site):
        return next((each for each in (site.name, _core.shared_input(site.name)) if each in states), None)

    def of(site):
        return known(site) and axes(known(site), site.d_in)
    of.knows = lambda site: known(site) is not None
    return of


def _gradients(given):
    """Maps sites to functions that return the statistics of B and A: the slopes of the log likelihood along marks."""
    given, names = given if isinstance(given, Mapping) else Tensors(given), {}
    for name in given:
        if found := re.fullmatch(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.\w+)?\.weight", name):
            names.setdefault(found[1], {})[found[2]] = name

    def of(site):
        result = []
        for matrix, own, axis in (("B", site.b, 0), ("A", site.a, 1)):
            name = names[site.name].get(matrix)
            if name is None:
                raise ParameterError(f"gradients: site {site.name!r}: got none of {matrix}, expected one of A and of B")
            slope = np.asarray(given[name], np.float64)
            if slope.shape != own.shape:
                raise ShapeError(f"gradients: {name!r}: got {list(slope.shape)}, expected {list(own.shape)}")
            if not np.isfinite(slope).all():
                raise EncodingError(f"gradients: {name!r}: got an entry that is no finite number, expected numbers")
            size = np.sqrt(np.square(own, dtype=np.float64).mean(axis, keepdims=True))
            result.append((slope * size).astype(np.float32).reshape(1, -1))
        return result
    return dict.fromkeys(names, of)


def _times(factors, m):
    return functools.reduce(lambda m, f: f @ m.astype(f.dtype, copy=False), factors[::-1], m).astype(np.float64)


def _inverse(x):
    return np.divide(1, x, out=np.zeros_like(x), where=x > 0)


def _left_vectors(change, turned, axes, b):
    """The first left singular vectors of D Sigma^(1/2), as many as B has columns: orthogonal iteration, from B on."""
    basis = np.hstack([b, np.random.default_rng(0).normal(size=(len(b), 8))])
    for last in (False, False, True):
        block = _times(turned, basis)
        if axes:
            block = axes[1][:, None] * (axes[0].T @ block)
        if not last:
            basis = np.linalg.qr(_times(change, axes[0] @ (axes[1][:, None] * block) if axes else block))[0]
    return basis @ np.linalg.eigh(block.T @ block)[1][:, -b.shape[1]:]


def _statistics(site, change, axes):
    """The tests' statistics of B and of A, [tests, entries] each; then the squared norms of D along B and A, and of D.

    D is the leak's change; B and A have columns and rows of root mean square 1.
    """
    b, a = site.b.astype(np.float64), site.a.astype(np.float64)
    of_b, of_a = np.sqrt((b * b).mean(axis=0)), np.sqrt((a * a).mean(axis=1))
    b, a, size = b * _inverse(of_b), a * _inverse(of_a)[:, None], _inverse(of_b * of_a)
    turned = [factor.T for factor in change[::-1]]
    gram_b, gram_a = b.T @ b, a @ a.T
    to_b, to_a = np.linalg.pinv(gram_b, hermitian=True), np.linalg.pinv(gram_a, hermitian=True)
    x_b, x_a = _times(change, a.T) @ to_a, to_b @ _times(turned, b).T  # D A^+ and B^+ D
    if not (np.isfinite(x_b).all() and np.isfinite(x_a).all()):
        raise EncodingError(f"leak: {site.name!r}: got an entry that is no finite number, expected numbers")
    m = x_a @ a.T @ to_a  # B^+ D A^+
    u = _left_vectors(change, turned, axes, b)
    r = x_a * size[:, None] - a
    values, vectors = np.linalg.eigh(x_a @ x_a.T)
    rows = np.linalg.qr(x_a.T @ vectors[:, values > 1e-8 * values[-1]])[0]
    values, vectors = np.linalg.eigh(r @ r.T)
    flat = (vectors * _inverse(np.sqrt(np.maximum(values, 1e-14 * values[-1])))) @ vectors.T @ r
    all_axes = axes[0] if axes else None
    of_b = [u @ (u.T @ b) - b, x_b * size - b, (x_b - b @ m) @ m.T]
    of_a = [r, m.T @ (x_a - m @ a), _whitened(r, all_axes), _whitened(r @ rows @ rows.T, rows), flat]
    energy = np.vdot(change[0].T @ change[0], change[1] @ change[1].T) if change[1:] else np.vdot(change[0], change[0])
    return (*(np.stack([each.ravel() for each in tests]).astype(np.float32) for tests in (of_b, of_a)),
            np.vdot(gram_b @ m @ gram_a, m), float(energy))


def _whitened(r, axes):
    """Divides r, along each of the axes, by its variance there, and what is left by its own."""
    if axes is None:
        return r * _inverse((r * r).mean(axis=0))
    along = r @ axes
    left, free = r - along @ axes.T, r.shape[1] - axes.shape[1]
    left *= free * len(r) / np.vdot(left, left) if free and np.vdot(left, left) > 1e-12 * np.vdot(r, r) else 0
    return (along * _inverse((along * along).mean(axis=0))) @ axes.T + left


def _worth(sites, of, text, step):
    """Returns how much an entry of each site's B and A says, [sites, 2], next to those of others.

    Where a leak's B or A is near the owner's, marks stand out, but a site that it leaves alone says nothing; of texts,
    where the log likelihood has large slopes.
    """
    result = np.zeros((len(sites), 2))
    for k, site in enumerate(sites):
        *both, _, energy = of(site)
        sizes = np.array([np.square(tests[0], dtype=np.float64).mean() for tests in both])
        result[k] = sizes if text else _inverse(sizes) * (energy > 0)
        step()
    return result


def _most_telling(whole, worth, share):
    """Returns how many entries of each site's B and A make up this share of all: those that say most first."""
    counts = np.zeros_like(whole)
    for matrix in range(2):
        left = math.ceil(share * whole[:, matrix].sum())
        for k in np.argsort(-worth[:, matrix], kind="stable"):
            counts[k, matrix] = min(left, whole[k, matrix])
            left -= counts[k, matrix]
    return counts


def _scores(sites, of, counts, tests, seeds, step):
    """Returns z [tenants, tests], and the shares of D along B and A: its own and chance's, None of texts.

    counts: how many entries of each site's B and A are compared.
    """
    threads = min(os.cpu_count() or 1, len(seeds))
    pieces = max(threads, len(seeds) // 4096)  # Ctrl-C waits for one
    cuts = [len(seeds) * k // pieces for k in range(pieces + 1)]
    parts = [b"".join(seeds[i:j]) for i, j in zip(cuts, cuts[1:])]
    sums, squares, shares = np.zeros((len(seeds), tests)), np.zeros(tests), np.zeros(3)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for site, taken in zip(sites, counts):
            *both, along, energy = of(site) if taken.any() else (0, 0)
            shares += along, energy * site.rank**2 / (site.d_in * site.d_out), energy
            first = 0
            for of_a, (values, count) in enumerate(zip(both, taken)):
                place, first = slice(first, first + len(values)), first + len(values)
                if count:
                    values = np.ascontiguousarray(values[:, :count])
                    score = functools.partial(_core.scores, site=site.name, of_a=bool(of_a), statistics=values)
                    sums[:, place] += np.concatenate(list(pool.map(score, parts)))
                    squares[place] += np.square(values, dtype=np.float64).sum(axis=1)
            step()
    if tests == len(TESTS_OF_TEXT):
        if not squares.any():
            raise ParameterError("gradients: got zeros alone, expected the slopes of a text's log likelihood")
        return sums * _inverse(np.sqrt(squares)), None, None
    if not shares[2]:
        raise ParameterError("leak: got the base model itself, expected a change of it")
    return sums * _inverse(np.sqrt(squares)), *(shares[:2] / shares[2]).tolist()
