"""Makes plain LoRA and public row factors of DoRA adapters: see `convert`."""

import json
import os
import pathlib
import tempfile
from typing import Union

import torch

from .adapter import load_peft
from .errors import FileError, FormatError, ParameterError, ShapeError, UnsupportedError
from .torch import _places, check_factors, load_tensors, weight_of

_Path = Union[str, "os.PathLike[str]"]
MAGNITUDE = ".lora_magnitude_vector"


def convert(model: torch.nn.Module, folder: _Path, out: _Path) -> None:
    """Converts an adapter of PEFT's with `use_dora` to one without, for its owner, who alone holds A.

    DoRA applies ``g * (W + scale B A)``, where g is the magnitude of each row over the norm of that row of the sum.
    `out` becomes a PEFT directory with A as it was and g B for B, which loads and is served like any other, and
    `row_factors.safetensors` with g, float32 of shape [d_out] for each site: a file to give to all clients, for
    `tensafe.torch.attach(..., row_factors=...)`. Neither is the adapter without the other. docs/security.md says what g
    tells of A.

    model: the base model that clients run, with the weights in plain numbers; layers are found as `attach` finds them.
    folder: holds adapter_config.json and adapter_model.safetensors.
    out: must not exist, or be empty.
    Raises FileError, FormatError or UnsupportedError for files that are not a DoRA adapter of linear layers;
    ParameterError or ShapeError for a model that is not its own, and where a norm is 0 or a factor beyond 1024.
    """
    source, target = pathlib.Path(os.fsdecode(folder)), pathlib.Path(os.fsdecode(out))
    tensors = load_tensors(source / "adapter_model.safetensors")
    from safetensors.torch import save_file  # which is there: load_tensors says so if it is not
    try:
        config = json.loads((source / "adapter_config.json").read_text("utf-8"))
        is_dora = config.get("use_dora")
    except (OSError, ValueError, AttributeError) as e:
        kind = FileError if isinstance(e, OSError) else FormatError
        raise kind(f"{source / 'adapter_config.json'}: {e}, expected a configuration of PEFT") from e
    magnitudes = {_module(name, MAGNITUDE): tensors.pop(name) for name in list(tensors) if MAGNITUDE in name}
    if not (is_dora and magnitudes):
        raise UnsupportedError(f"{source}: got " + ("no lora_magnitude_vector" if is_dora else "no use_dora")
                               + ", expected a DoRA adapter: others are served as they are")
    try:
        with tempfile.TemporaryDirectory(dir=target.absolute().parent) as beside:
            draft = pathlib.Path(beside) / "adapter"
            draft.mkdir()
            (draft / "adapter_config.json").write_text(json.dumps({**config, "use_dora": False}, indent=2), "utf-8")
            save_file(tensors, draft / "adapter_model.safetensors")
            factors = _factors(model, load_peft(draft), magnitudes)
            for name, tensor in tensors.items():
                if (site := _module(name, ".lora_B.")) in factors:
                    tensors[name] = (factors[site].double()[:, None] * tensor.double()).float()
            save_file(tensors, draft / "adapter_model.safetensors")
            save_file(factors, draft / "row_factors.safetensors")
            os.replace(draft, target)
    except OSError as e:
        raise e if isinstance(e, FileError) else FileError(f"{target}: {e}, expected a new folder") from e


def _module(name, marker):
    return name.partition(marker)[0].removeprefix("base_model.model.") if marker in name else None


def _factors(model, adapter, magnitudes):
    """Returns magnitude / norm for each output of each site. Raises as `convert` does."""
    for names, what in ((adapter.keys() - magnitudes, "lora_magnitude_vector"), (magnitudes.keys() - adapter, "LoRA")):
        if names:
            raise FormatError(f"convert: site {min(names)!r}: got no {what}, expected both: the file is not complete")
    places = _places("convert", model, {name: (site.d_in, site.d_out) for name, site in adapter.items()}, None)
    factors = {}
    for name, (*_, layer) in places.items():
        weight, what = weight_of(layer), f"convert: site {name!r}"
        if weight is None:
            raise UnsupportedError(f"{what}: got a layer whose weights are quantised or elsewhere, expected numbers: "
                                   "load the model without quantisation")
        a, b = (torch.tensor(matrix, dtype=torch.float64) for matrix in (adapter[name].a, adapter[name].b))
        norms = torch.cat([torch.linalg.vector_norm(w.cpu().double() + adapter[name].scale * rows @ a, dim=1)
                           for w, rows in zip(weight.split(1024), b.split(1024))])  # in doubles, so few rows at a time
        if len(zeros := (norms == 0).nonzero()):
            raise ParameterError(f"{what}: output {int(zeros[0])}: got a row of W + scale B A of norm 0, by which DoRA "
                                 "divides, expected another norm: train without this site, or without DoRA")
        if magnitudes[name].shape != norms.shape:
            raise ShapeError(f"{what}: got a lora_magnitude_vector of shape {list(magnitudes[name].shape)}, expected "
                             f"{list(norms.shape)}, a number for each output")
        factors[name] = check_factors(f"{what}: magnitude / norm", magnitudes[name].double() / norms, len(norms), 1024)
    return factors
