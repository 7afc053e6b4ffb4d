"""A device that is not there: tensors claim to live on ``cuda:0``, their values are computed on the CPU.

Within :func:`simulated_device` a tensor is on the simulated device or on the CPU, and code meets what it
would meet with a GPU: tensors of both in one operation are an error (a CPU scalar in a pointwise operation
and CPU positions into a device tensor are allowed, as there), a CPU generator cannot draw on the device,
numpy cannot read it, and what waits for the device is written down with the line that asked for it. Values
are the real ones, so that whole runs can be made::

    with simulated_device() as account:
        record = start(resolved, catalogue, directory)
    print(account.table())

The claim belongs to the storage of a tensor, so views, parameters and ``detach`` share it. What only hardware
has is not shown: kernels that are missing or give other bits, limits of memory, streams, several devices,
generators of the device, and most of ``torch.cuda`` (``is_available`` says False). CUDA graphs are replayed
by :func:`replaying.replaying`, and each is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from device_account import Account
from lw2g.devices.engine import Engine, open_engine
from lw2g.models import parts
from lw2g.vit import graphs
from replaying import replaying

__all__ = ["DEVICE", "simulated_device"]

DEVICE = torch.device("cuda", 0)
_CPU = torch.device("cpu")

Claim = Literal["device", "cpu", "open"]
"""Where a storage is; ``open`` is what an operation made within itself, wherever its inputs will say."""

_READS = {
    "aten::_local_scalar_dense": "item",
    "aten::equal": "equal",
    "aten::nonzero": "nonzero",
    "aten::nonzero_numpy": "nonzero",
    "aten::masked_select": "masked_select",
    "aten::_unique2": "unique",
    "aten::unique_dim": "unique",
    "aten::unique_consecutive": "unique",
    "aten::bincount": "bincount",
    "aten::_linalg_eigh": "eigh",
    "aten::_linalg_svd": "svd",
    "aten::_linalg_check_errors": "linalg",
}
"""Operations whose result, or its shape, the host must know."""

_INDEXING = frozenset({"aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_"})
_SUBSCRIPTS = (Tensor.__getitem__, Tensor.__setitem__)
"""Whatever a subscript becomes, its CPU positions are moved to the device first."""

_TAKES_SCALARS = frozenset({"aten::masked_fill", "aten::masked_fill_", "aten::fill", "aten::fill_"})
_NOT_DETERMINISTIC = frozenset(
    {
        "aten::adaptive_max_pool2d_backward",
        "aten::_adaptive_avg_pool2d_backward",
        "aten::avg_pool3d_backward",
        "aten::cumsum",
        "aten::cumsum_",
        "aten::grid_sampler_2d_backward",
        "aten::histc",
        "aten::kthvalue",
        "aten::max_unpool2d",
        "aten::median",
        "aten::nll_loss2d_forward",
        "aten::put_",
        "aten::reflection_pad2d_backward",
        "aten::resize_",
        "aten::upsample_bicubic2d_backward",
        "aten::upsample_bilinear2d_backward",
    }
)
"""Operations that ``torch.use_deterministic_algorithms`` refuses on CUDA."""


# -- claims --------------------------------------------------------------------------------------------------


def _claim(tensor: Tensor) -> Claim:
    claim: Claim = getattr(tensor.untyped_storage(), "lw2g_claim", "cpu")
    return claim


def _set_claim(tensor: Tensor, claim: Claim) -> None:
    setattr(tensor.untyped_storage(), "lw2g_claim", claim)  # noqa: B010 (it declares no such attribute)


def _plain(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own: sparse and meta ones are left alone."""
    return tensor.layout == torch.strided and not tensor.is_meta


def _tensors(*values: Any) -> list[Tensor]:
    """Return the tensors in arguments or results (torch's own tree walk takes most of a run's time)."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            if _plain(value):
                found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(*value)
        elif isinstance(value, dict):
            found += _tensors(*value.values())
    return found


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every operation as a kernel sees it: devices must fit, and results are where the inputs are."""

    def __init__(self, account: Account) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._account = account
        self.within: Any = None
        """The function that Python has called."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            inputs = _tensors(args, kwargs)
            claims = {_claim(tensor) for tensor in inputs}
            where: Claim = "device" if "device" in claims else "cpu" if "cpu" in claims else "open"
            name = func._schema.name
            if where == "device":
                self._check(func, name, args, kwargs, inputs)
            out = func(*args, **kwargs)
            if name in ("aten::copy_", "aten::set_"):
                return out
            for tensor in (*inputs, *_tensors(out)):
                if _claim(tensor) == "open" or (where == "device" and not _is_one_of(tensor, inputs)):
                    _set_claim(tensor, where)
            if not inputs:
                for tensor in _tensors(out):
                    _set_claim(tensor, "open")
            return out

    def _check(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], inputs: list[Tensor]
    ) -> None:
        on_cpu = [tensor for tensor in inputs if _claim(tensor) == "cpu"]
        if name == "aten::copy_":
            self._copy(args)
        elif name in _INDEXING:
            self._index(name, args)
        elif on_cpu and self.within in _SUBSCRIPTS and _claim(args[0]) == "device":
            self._account.note("upload", "index")
        elif on_cpu:
            pointwise = torch.Tag.pointwise in func.tags or name.startswith("aten::_foreach_")
            scalars = all(tensor.ndim == 0 for tensor in on_cpu) and (pointwise or name in _TAKES_SCALARS)
            if not scalars or any(_is_one_of(written, on_cpu) for written in _written(func, args, kwargs)):
                raise _mixed(name)
        if name in _READS:
            self._account.note("read", _READS[name])
        if name == "aten::repeat_interleave" and kwargs.get("output_size") is None:
            self._account.note("read", "repeat_interleave")
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type == "cpu":
            raise RuntimeError(
                "Expected a 'cuda' device type for generator but found 'cpu' (simulated device)"
            )
        refused = torch.are_deterministic_algorithms_enabled() and name in _NOT_DETERMINISTIC
        if refused and inputs[0].is_floating_point():
            raise RuntimeError(f"{name} does not have a deterministic implementation (simulated device)")

    def _copy(self, args: tuple[Any, ...]) -> None:
        into, source = (_claim(tensor) for tensor in args[:2])
        waits = not (len(args) > 2 and args[2])
        if into == "cpu":
            self._account.note("read", "copy_")
        elif source == "cpu":
            self._account.note("upload" if waits else "send", "copy_")

    def _index(self, name: str, args: tuple[Any, ...]) -> None:
        indices = _tensors(args[1])
        if _claim(args[0]) == "cpu":
            raise _mixed(name)
        value = args[2] if len(args) > 2 else None
        if value is not None and _claim(value) == "cpu" and value.ndim:
            raise _mixed(name)
        fills = value is not None and value.numel() == 1 and _claim(value) == "cpu"
        masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
        if any(_claim(index) == "device" for index in masks) and not fills:
            self._account.note("read", "mask")
        if any(_claim(index) == "cpu" for index in indices):
            self._account.note("upload", "index")


def _is_one_of(tensor: Tensor, others: list[Tensor]) -> bool:
    return any(tensor is other for other in others)


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation writes into."""
    found = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found


def _mixed(name: str) -> RuntimeError:
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        f"(in {name.removeprefix('aten::')}, simulated device)"
    )


# -- names ---------------------------------------------------------------------------------------------------


class _Names(TorchFunctionMode):
    """Every function as Python calls it: what a tensor says of its device, and where one is asked for."""

    def __init__(self, account: Account, kernels: _Kernels) -> None:
        super().__init__()
        self._account, self._kernels = account, kernels
        self._own: dict[Any, Callable[..., Any]] = {
            Tensor.device.__get__: lambda tensor: _device_of(tensor),
            Tensor.is_cuda.__get__: lambda tensor: _claim(tensor) == "device",  # type: ignore[attr-defined]
            Tensor.is_cpu.__get__: lambda tensor: _claim(tensor) != "device",  # type: ignore[attr-defined]
            Tensor.get_device: lambda tensor: 0 if _claim(tensor) == "device" else -1,
            Tensor.to: self._to,
            Tensor.cpu: lambda tensor, **_: self._move(tensor, _CPU, wait=True),
            Tensor.cuda: lambda tensor, device=None, non_blocking=False, **_: self._move(
                tensor, DEVICE, wait=not non_blocking
            ),
            Tensor.type_as: lambda tensor, other: self._to(tensor, other),
            Tensor.pin_memory: self._pin,
            Tensor.is_pinned: lambda tensor, *_: hasattr(tensor.untyped_storage(), "lw2g_pinned"),
            Tensor.__deepcopy__: self._deepcopy,
            torch._C._nn._parse_to: torch._C._nn._parse_to,  # what nn.Module.to makes of its arguments
        }
        self._forbidden = (Tensor.numpy, Tensor.__array__)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        own = self._own.get(func)
        if own is not None:
            return own(*args, **kwargs)
        if func in self._forbidden and _claim(args[0]) == "device":
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                "host memory first. (simulated device)"
            )
        if func is Tensor.tolist and args[0].ndim and _claim(args[0]) == "device":
            self._account.note("read", "tolist")
        asked, args, kwargs = _without_device(args, kwargs)
        if asked is None:
            return self._settled(func, args, kwargs)
        return self._made(func, asked, args, kwargs)

    def _settled(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function; what it has made by itself is where its inputs are, and else on the CPU."""
        self._kernels.within = func
        out = func(*args, **kwargs)
        fresh = [tensor for tensor in _tensors(out) if _claim(tensor) == "open"]
        if fresh:
            where: Claim = (
                "device" if any(_claim(one) == "device" for one in _tensors(args, kwargs)) else "cpu"
            )
            for tensor in fresh:
                _set_claim(tensor, where)
        return out

    def _made(self, func: Any, asked: torch.device, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that was told where its result belongs."""
        generator = kwargs.get("generator")
        if generator is not None and generator.device != asked and asked == DEVICE:
            raise RuntimeError(
                "Expected a 'cuda' device type for generator but found 'cpu' (simulated device)"
            )
        out = func(*args, **kwargs)
        hands_over = func in (torch.tensor, torch.as_tensor, torch.asarray) and asked == DEVICE
        if hands_over and not (isinstance(args[0], Tensor) and _claim(args[0]) == "device"):
            self._account.note("upload", func.__name__)
        return tree_map(lambda leaf: _placed(leaf, asked) if isinstance(leaf, Tensor) else leaf, out)

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        places = [arg for arg in (*args, kwargs.get("device")) if isinstance(arg, torch.device | str)]
        dtypes = [arg for arg in (*args, kwargs.get("dtype")) if isinstance(arg, torch.dtype)]
        flags = dict(zip(("non_blocking", "copy"), [arg for arg in args if isinstance(arg, bool)]))  # noqa: B905
        flags |= {name: kwargs[name] for name in ("non_blocking", "copy") if name in kwargs}
        for other in (arg for arg in (*args, kwargs.get("other")) if isinstance(arg, Tensor)):
            places, dtypes = [_device_of(other)], [other.dtype]
        device = _simulated(places[0]) if places else _device_of(tensor)
        moved = self._move(tensor, device, wait=not flags.get("non_blocking"))
        copy = flags.get("copy", False) and moved is tensor
        return moved.to(dtypes[0] if dtypes else tensor.dtype, copy=copy)

    def _move(self, tensor: Tensor, device: torch.device, *, wait: bool) -> Tensor:
        if device == _device_of(tensor):
            return tensor
        if device == _CPU:
            self._account.note("read", "cpu")
        else:
            self._account.note("upload" if wait else "send", "to")
        moved = tensor.clone()
        _set_claim(moved, "device" if device == DEVICE else "cpu")
        return moved

    @staticmethod
    def _pin(tensor: Tensor, *_: Any) -> Tensor:
        if _claim(tensor) == "device":
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        pinned = tensor.clone()
        _set_claim(pinned, "cpu")
        setattr(pinned.untyped_storage(), "lw2g_pinned", True)  # noqa: B010
        return pinned

    @staticmethod
    def _deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
        copied: Tensor = Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]
        _set_claim(copied, _claim(tensor))
        return copied


def _device_of(tensor: Tensor) -> torch.device:
    return DEVICE if _plain(tensor) and _claim(tensor) == "device" else tensor.device


def _placed(tensor: Tensor, device: torch.device) -> Tensor:
    wanted: Claim = "device" if device == DEVICE else "cpu"
    if _claim(tensor) not in ("open", wanted):
        tensor = tensor.clone()
    _set_claim(tensor, wanted)
    return tensor


def _simulated(device: torch.device | str) -> torch.device:
    """Return the simulated device for any CUDA device."""
    asked = torch.device(device)
    return DEVICE if asked.type == DEVICE.type else asked


def _without_device(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.device | None, tuple[Any, ...], dict[str, Any]]:
    """Return the device that a call asks for, None for none, and the arguments with the CPU instead."""
    found = kwargs.get("device") or next((arg for arg in args if isinstance(arg, torch.device)), None)
    if found is None:
        return None, args, kwargs
    args = tuple(_CPU if isinstance(arg, torch.device) else arg for arg in args)
    return _simulated(found), args, {**kwargs, "device": _CPU} if "device" in kwargs else kwargs


# -- runs ----------------------------------------------------------------------------------------------------


_CUDA: dict[str, Callable[..., Any]] = {
    "synchronize": lambda device=None: None,
    "mem_get_info": lambda device=None: (2**33, 2**34),
    "get_device_name": lambda device=None: "simulated",
    "get_device_properties": lambda device: SimpleNamespace(name="simulated", total_memory=2**34),
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
}
"""What is asked of torch.cuda."""


class _SimulatedEngine(Engine):
    """The engine of a run on the simulated device."""

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the processor, which does the arithmetic."""
        return Engine(device=torch.device("cpu"), precision=self.precision).autocast()


def _open_engine(device: str, precision: str, *, deterministic: bool = False) -> Engine:
    open_engine("cpu", precision, deterministic=deterministic)
    return _SimulatedEngine(device=DEVICE, precision=precision, deterministic=deterministic)


def _group_by_claim(group: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's grouping of tensors by device and dtype, with claimed devices."""

    def grouped(tensors: Any, with_indices: bool = False) -> Any:
        found = group(tensors, with_indices)
        return {
            (_device_of(next(one for one in lists[0] if one is not None)), dtype): (lists, indices)
            for (_, dtype), (lists, indices) in found.items()
        }

    return grouped


@contextmanager
def simulated_device() -> Iterator[Account]:
    """Let sessions that are opened within the block run on the simulated device; what they waited for.

    Tensors outlive the block with their values; their claims then mean nothing any more.
    """
    account = Account()
    numbers: dict[int, int] = {}
    kept: list[torch.optim.Optimizer] = []

    def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if id(optimizer) not in numbers:
            numbers[id(optimizer)] = len(kept)
            kept.append(optimizer)
        account.steps.append(numbers[id(optimizer)])

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(parts, "open_engine", _open_engine))
        modes = {"get_sync_debug_mode": lambda: 0, "set_sync_debug_mode": account.set_mode}
        for name, answer in (_CUDA | modes).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(graphs, "captured", replaying))
        grouping = _group_by_claim(torch._C._group_tensors_by_device_and_dtype)
        stack.enter_context(mock.patch.object(torch._C, "_group_tensors_by_device_and_dtype", grouping))
        stack.enter_context(warnings.catch_warnings())
        # said where no CUDA is there, though these are asked to do nothing
        warnings.filterwarnings("ignore", ".*CUDA is not available.*")
        warnings.filterwarnings("ignore", ".*pin_memory.*")
        stack.callback(register_optimizer_step_post_hook(stepped).remove)
        kernels = stack.enter_context(_Kernels(account))
        stack.enter_context(_Names(account, kernels))
        yield account
