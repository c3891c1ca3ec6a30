"""Turns hidden states, whatever holds them, into numpy arrays and back without a copy."""

import sys

import numpy as np


def _same(array):
    return array


def as_array(x):
    """Returns (array, is_bfloat16, back): `back` makes a result of the kind of x from an array of its type.

    bfloat16 tensors come as uint16 arrays, since numpy has no such type.
    """
    if type(x) is np.ndarray:
        return x, False, _same
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_tensor(x, torch)
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray):
        return np.from_dlpack(x), False, _same
    return np.asarray(x), False, _same


def _from_tensor(x, torch):
    if x.device.type != "cpu":
        raise TypeError(f"hidden states: got a tensor on {x.device}, expected one on the CPU: x.cpu()")
    if x.requires_grad and torch.is_grad_enabled():
        raise TypeError("hidden states: got a tensor that needs a gradient, which an encrypted adapter does not have: "
                        "use torch.no_grad(), or x.detach()")
    x = x.detach()
    if x.dtype == torch.bfloat16:
        return (x.view(torch.int16).numpy().view(np.uint16), True,
                lambda array: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16))
    return x.numpy(), False, torch.from_numpy
