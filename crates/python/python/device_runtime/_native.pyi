"""Type stubs of the package's classes, with their docstrings: `python tests/stub_docs.py` writes these."""

import builtins
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, TypeVar, final, overload
from uuid import UUID

import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing_extensions import CapsuleType, Self, TypeAlias

__all__ = [
    "ArrayAccess",
    "ArrayBuffer",
    "Communicator",
    "ConflictError",
    "Device",
    "DeviceArray",
    "DeviceFaultError",
    "DeviceInfo",
    "DeviceLostError",
    "Dim",
    "DriverError",
    "Error",
    "Event",
    "FieldSpec",
    "HaloExchange",
    "InvalidArgumentError",
    "InvalidModuleError",
    "Kernel",
    "KernelNotFoundError",
    "LimitExceededError",
    "Module",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "PeerLostError",
    "PinnedArray",
    "PoisonedError",
    "Progress",
    "Quantity",
    "StaleError",
    "Stream",
    "TimeoutError",
    "Timer",
    "Topology",
    "TransferReport",
    "UnavailableError",
    "UninitializedError",
    "UnknownDeviceError",
    "UnsupportedError",
    "WrongDeviceError",
    "WrongStreamError",
    "backends",
    "devices",
    "here",
    "offload",
    "transfer_budget",
]
__version__: Final[str]

_R = TypeVar("_R")
_Shape: TypeAlias = int | Sequence[int]
_Order: TypeAlias = Literal["C", "F"]
_Extent: TypeAlias = int | Sequence[int]
_Place: TypeAlias = Stream | Device | Literal["host"]

class Error(Exception):
    kind: str | None
    operation: str | None
    device: str | None
    code: int | None
    name: str | None
    log: str | None

class UnavailableError(Error): ...
class UnknownDeviceError(Error, ValueError): ...
class OutOfMemoryError(Error, MemoryError): ...
class InvalidArgumentError(Error, ValueError): ...
class UnsupportedError(Error): ...
class OutOfBoundsError(Error, IndexError): ...
class WrongDeviceError(Error, ValueError): ...
class WrongStreamError(Error, ValueError): ...
class InvalidModuleError(Error, ValueError): ...
class KernelNotFoundError(Error, LookupError): ...
class TimeoutError(Error, builtins.TimeoutError): ...
class DeviceFaultError(Error): ...
class DeviceLostError(Error): ...
class PeerLostError(Error): ...
class DriverError(Error): ...
class UninitializedError(Error): ...
class PoisonedError(Error): ...
class StaleError(Error): ...
class ConflictError(Error): ...
class LimitExceededError(Error): ...

def devices() -> list[DeviceInfo]:
    """Returns every device that can be opened now. ``backends`` gives the reason why a backend has no device."""
def backends() -> dict[str, Error | None]:
    """Returns the backends of this package: each name, and None or the error that explains why the backend has no
    device here."""
def here() -> Stream | None:
    """The current stream of this thread or task, or None for the host."""

@final
class DeviceInfo:
    """The identity and limits of a device."""

    @property
    def id(self) -> str:
        """The backend and index, such as ``cuda:0``."""
    @property
    def kind(self) -> str:
        """The kind of device: host, cpu, gpu, accelerator, embedded or simulated."""
    @property
    def name(self) -> str:
        """The product name."""
    @property
    def vendor(self) -> str:
        """The vendor."""
    @property
    def architecture(self) -> str:
        """The instruction set that kernels are compiled for, such as ``sm_90`` or ``gfx90a``."""
    @property
    def driver_version(self) -> str:
        """The version of the driver in use."""
    @property
    def uuid(self) -> UUID | None:
        """The device's unique identifier as a ``uuid.UUID``, or None."""
    @property
    def pci(self) -> tuple[int, int, int] | None:
        """The domain, bus and device number on the PCI bus, or None."""
    @property
    def memory_bytes(self) -> int | None:
        """The memory size in bytes, or None if it is not known."""
    @property
    def compute_units(self) -> int:
        """The number of cores, multiprocessors or compute units."""
    @property
    def subgroup_size(self) -> int:
        """The number of work-items that execute together; 1 if there is no such unit."""
    @property
    def formats(self) -> list[str]:
        """The supported module formats, best first, by the names that ``Device.module`` uses."""
    @property
    def absent_formats(self) -> dict[str, str]:
        """Formats that would be supported if everything they need were installed, each with the problem."""
    @property
    def limits(self) -> dict[str, Any]:
        """The limits of launches and allocations, by name."""

@final
class Device:
    """An opened device, by its selector: ``Device("cuda:0")``, ``Device("opencl:pocl:0")``, ``Device("host")``.

    Opening a device twice gives two devices, and each refuses objects of the other. So open it once and pass it on.
    Without a selector, the environment variable ``RUNTIME_DEVICE`` names the device; the default is ``host``."""

    def __new__(cls, selector: str | None = None) -> Self: ...
    @property
    def id(self) -> str:
        """The backend and index, such as ``cuda:0``."""
    @property
    def info(self) -> DeviceInfo:
        """The identity and limits."""
    @property
    def capabilities(self) -> dict[str, str]:
        """How each optional capability is provided: native, emulated or absent."""
    @property
    def handle(self) -> int:
        """The vendor's handle of the device or its context as an int; valid while this object lives."""
    @property
    def pool_bytes(self) -> tuple[int, int] | None:
        """The reserved and the used bytes of the memory pool, or None without a pool."""
    @property
    def statistics(self) -> dict[str, Any]:
        """The transfers and launches since the device was opened. For each direction, the number of copies and their
        bytes."""
    @property
    def default_stream(self) -> Stream:
        """The default stream."""
    def load(self) -> dict[str, Any]:
        """The free and used memory in bytes as ``memory_free`` and ``memory_used``, and the recent utilisation of
        processor and memory as ``processor_busy`` and ``memory_busy``. An entry is None if the device does not report
        it."""
    def trim_pool(self, keep_bytes: int = 0) -> None:
        """Frees unused memory of the pool until at most ``keep_bytes`` are reserved beyond the used bytes."""
    def synchronize(self) -> None:
        """Blocks until all work on the device has finished."""
    def reaches(self, other: Device) -> bool:
        """Whether this device can copy from ``other``, and wait for its events, without the host."""
    def stream(self, priority: int = 0) -> Stream:
        """Creates a stream. A larger priority is more urgent; the default is 0."""
    def event(self, timing: bool = True) -> Event:
        """Creates an event. Only events with timing can measure elapsed time."""
    def empty(self, shape: _Shape, dtype: DTypeLike | None = None, order: _Order = "C") -> DeviceArray:
        """Creates an array. Its values are unspecified until they are written."""
    def zeros(
        self, shape: _Shape, dtype: DTypeLike | None = None, order: _Order = "C", stream: Stream | None = None
    ) -> DeviceArray:
        """Creates an array of zeros, filled in stream order."""
    def full(
        self,
        shape: _Shape,
        value: Any,
        dtype: DTypeLike | None = None,
        order: _Order = "C",
        stream: Stream | None = None,
    ) -> DeviceArray:
        """Creates an array with every element set to ``value``, converted as by ``DeviceArray.fill``, in stream order.
        """
    def array(
        self, source: Any, dtype: DTypeLike | None = None, order: _Order | None = None, stream: Stream | None = None
    ) -> DeviceArray:
        """Creates an array with the values of ``source``: an array that supports a protocol, or anything that NumPy
        converts to an array. The source may be changed after the call returns, unless it is a PinnedArray. Lists and
        numbers are converted to ``dtype`` as by ``numpy.asarray``, which cuts off fractions for an integer type."""
    def adopt(self, source: Any, stream: Stream | None = None) -> DeviceArray:
        """Imports an array of another library as an array of this device, without a copy. The source must support
        DLPack, the CUDA array interface, the SYCL USM array interface, NumPy's array interface or Arrow's device
        interface, and be in memory that this device can use. Work on ``stream`` comes after the work that writes the
        source. The array keeps the source alive. An array of this device shares its memory, and operations on both are
        ordered as those on one array."""
    def from_pointer(
        self,
        pointer: int,
        shape: _Shape,
        dtype: DTypeLike | None = None,
        *,
        strides: Sequence[int] | None = None,
        owner: Any = None,
    ) -> DeviceArray:
        """Makes an array over memory of this device from the address of its first element. ``strides`` are in bytes.
        ``owner`` is kept alive while the memory is in use.

        The address is not checked: elements that do not exist cause a fault of the device or of this process."""
    def pinned(
        self, shape: _Shape, dtype: DTypeLike | None = None, order: _Order = "C", write_combined: bool = False
    ) -> PinnedArray:
        """Creates an array of zeros in pinned host memory, the host side of asynchronous copies. Write-combined memory
        is for arrays that the host writes but does not read."""
    def module(self, code: str | bytes, format: str | None = None, options: Sequence[str] = ()) -> Module:
        """Loads code: source as str, or bytes. ``format`` is one of ``DeviceInfo.formats``; the default is the first
        that accepts the code. ``options`` are passed to the compiler."""
    def module_bundle(self, images: dict[str, str | bytes], options: Sequence[str] = ()) -> Module:
        """Loads the best of several images for this device. ``images`` is a dict of code by format. ``options`` apply
        to every image that supports options."""

@final
class Stream:
    """An in-order queue of work on a device, made by ``Device.stream``.

    Work on one stream runs in the order in which it was enqueued. Only events order different streams. As a context
    manager, the stream synchronizes at the end of the block."""

    @property
    def device(self) -> Device:
        """The device of the stream."""
    @property
    def id(self) -> int:
        """A number that is unique among the streams of the process."""
    @property
    def handle(self) -> int:
        """The vendor's handle as an int, such as a ``cudaStream_t``; valid while this object lives."""
    @property
    def is_done(self) -> bool:
        """Whether all work enqueued so far has finished or failed. Never blocks."""
    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until all work enqueued so far has finished, for at most ``timeout`` seconds. Raises the first failure
        of asynchronous work that was not reported before."""
    def check(self) -> None:
        """Raises the first failure of finished work that was not reported before. Never blocks."""
    def record(self, event: Event | None = None) -> Event:
        """Records ``event``, or a new event, after all work enqueued so far, and returns it."""
    def wait(self, event: Event) -> None:
        """Makes work that is enqueued from now on wait for the event, on the device."""
    def timer(self) -> Timer:
        """Measures the work that is enqueued in a ``with`` block. It measures device time, not host time."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class Event:
    """A mark in a stream that other streams can wait for, made by ``Device.event`` or ``Stream.record``."""

    @property
    def device(self) -> Device:
        """The device of the event."""
    @property
    def handle(self) -> int:
        """The vendor's handle as an int, such as a ``cudaEvent_t``; valid while this object lives."""
    @property
    def is_done(self) -> bool:
        """Whether the work before the latest mark has finished. Never blocks."""
    def record(self, stream: Stream) -> None:
        """Records the event after all work enqueued so far on the stream."""
    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until the work before the latest mark has finished, for at most ``timeout`` seconds."""
    def elapsed_since(self, earlier: Event) -> float:
        """The seconds on the device from the mark of ``earlier`` to the mark of this event. Blocks until both are
        reached."""

@final
class Timer:
    """Measures the time that work takes on a device: ``with stream.timer() as timer: …``."""

    def elapsed(self) -> float:
        """The seconds on the device from the start of the block to its end. Blocks until the end is reached."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class Module:
    """Code loaded on a device, made by ``Device.module``."""

    @property
    def device(self) -> Device:
        """The device that the module is loaded on."""
    def kernel(self, name: str) -> Kernel:
        """Returns the kernel with this name."""
    def __getitem__(self, name: str, /) -> Kernel: ...

@final
class Kernel:
    """A kernel of a loaded module, made by ``Module.kernel`` or ``module[name]``.

    ``kernel(stream, grid, block, arguments=(), *, shared_bytes=0, cooperative=False, relaxed=False)`` enqueues it.

    Enqueues the kernel with ``grid`` blocks of ``block`` work-items. Each is an int, or up to three ints for x, y and
    z.

    Arguments are arrays, numbers and bytes. For an array, the kernel gets the address of the first element. A number is
    a NumPy number, which has a type, or a Python number if the loaded kernel reports the type of the parameter. Bytes
    are for structures. Arguments are checked against the parameters that the loaded kernel reports. Nothing else is
    checked: a kernel that accesses memory outside its arguments corrupts memory, as in any language.

    The stream waits for unfinished work of other streams that writes the arrays. If the kernel may write an array, the
    stream also waits for work that reads it. The kernel may write unless the array is read-only or the loaded kernel
    reports that the parameter is constant. ``relaxed=True`` leaves out these waits. An address that is passed as a
    number is not tracked."""

    @property
    def name(self) -> str:
        """The name in the module."""
    @property
    def device(self) -> Device:
        """The device that the kernel is loaded on."""
    @property
    def parameters(self) -> list[tuple[str, str | None, int | None, bool | None]] | None:
        """The parameters of the loaded kernel, or None if the driver does not report them. For each parameter: whether
        it is memory or a value, its element type, its size in bytes, and whether it is written, as far as these are
        known."""
    def suggested_block(self, shared_bytes: int = 0) -> int:
        """The number of work-items per block that suits the kernel best."""
    def resident_blocks(self, block: int, shared_bytes: int = 0) -> int | None:
        """The number of blocks of ``block`` work-items that one multiprocessor holds at once, or None if the driver
        does not report it."""
    def __call__(
        self,
        stream: Stream,
        grid: _Extent,
        block: _Extent,
        arguments: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
        relaxed: bool = False,
    ) -> None: ...

@final
class DeviceArray:
    """An n-dimensional array in device memory, made by ``Device.array``, ``Device.empty``, ``Device.zeros``,
    ``Device.full`` or ``Device.adopt``.

    Indexing with integers, slices of any step, ``...`` and ``None`` returns arrays that share its memory.

    An operation comes after unfinished work on the arrays that it uses, on any stream: after work that writes them, and
    if it writes them itself, after all work. Its stream waits, not the host. ``relaxed=True`` leaves out this order;
    then only the stream orders the operation. If the operation names no ``stream``, it is enqueued on this thread's
    current stream if that belongs to the array's device, else on the device's default stream. For an array lent by an
    ArrayBuffer it is enqueued on the stream of the access. Work that was enqueued by other libraries, by kernels that
    got an address as a number, or by other arrays over adopted memory, is not tracked."""

    @property
    def device(self) -> Device:
        """The device of the array."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each dimension."""
    @property
    def strides(self) -> tuple[int, ...]:
        """The number of bytes from one element to the next along each dimension."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, a ``numpy.dtype``."""
    @property
    def ndim(self) -> int:
        """The number of dimensions."""
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def itemsize(self) -> int:
        """The number of bytes of one element."""
    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
    @property
    def read_only(self) -> bool:
        """Whether the array is read-only."""
    @property
    def is_c_contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
    @property
    def is_f_contiguous(self) -> bool:
        """Whether the elements are in column-major order without gaps."""
    @property
    def ptr(self) -> int:
        """The address of the first element, as kernels see it; 0 for an array without elements. Arrays in memory
        objects, such as OpenCL buffers, have no address: see ``handle`` and ``offset``."""
    @property
    def handle(self) -> int:
        """The vendor's handle of the whole memory: an address or a ``cl_mem``. 0 for memory of no bytes."""
    @property
    def offset(self) -> int:
        """The number of bytes from the start of the memory to the first element."""
    @property
    def T(self) -> DeviceArray:
        """The same elements with the dimensions in reverse order."""
    @overload
    def transpose(self, *axes: int) -> DeviceArray:
        """The same elements with the dimensions in this order, given one by one or as a tuple. Without arguments, the
        order is reversed."""
    @overload
    def transpose(self, axes: Sequence[int], /) -> DeviceArray: ...
    @overload
    def reshape(self, *shape: int) -> DeviceArray:
        """The same elements in another shape, in row-major order. The extents are given one by one or as a tuple. One
        of them may be -1; it is computed from the others. The array must be C-contiguous; otherwise copy it first."""
    @overload
    def reshape(self, shape: Sequence[int], /) -> DeviceArray: ...
    @overload
    def get(
        self, out: None = None, stream: Stream | None = None, order: _Order | None = None, *, relaxed: bool = False
    ) -> NDArray[Any]:
        """Returns the values as a NumPy array, or copies them to ``out``. Blocks until they are there, unless ``out``
        is a PinnedArray. ``relaxed`` leaves out the order with other streams."""
    @overload
    def get(
        self, out: _R, stream: Stream | None = None, order: _Order | None = None, *, relaxed: bool = False
    ) -> _R: ...
    def set(self, source: Any, stream: Stream | None = None, *, relaxed: bool = False) -> None:
        """Sets the values to those of ``source``, an array of the same shape and type. The source may be changed after
        the call returns, unless it is a PinnedArray or on a device. ``relaxed`` leaves out the order with other
        streams."""
    def fill(self, value: Any, stream: Stream | None = None, *, relaxed: bool = False) -> None:
        """Enqueues a fill that sets every element to ``value``. For integers it is an integer in range, as for Python's
        ``array.array``. For floating-point numbers it is rounded as by NumPy: 1e300 is infinity in a float32.
        ``relaxed`` leaves out the order with other streams."""
    def copy(self, order: _Order = "C", stream: Stream | None = None, *, relaxed: bool = False) -> DeviceArray:
        """Returns a new array on the same device with the same values, without gaps. ``relaxed`` leaves out the order
        with other streams."""
    def to_device(self, device: Device, *, stream: Stream | None = None) -> DeviceArray:
        """Returns the array on another device; the array itself if it is already there. ``stream`` is a stream of that
        device. The copy comes after the array's unfinished work."""
    def __getitem__(self, key: Any, /) -> DeviceArray: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[DeviceArray]: ...
    def __eq__(self, other: object, /) -> NoReturn: ...
    def __ne__(self, other: object, /) -> NoReturn: ...
    def __contains__(self, value: object, /) -> NoReturn: ...
    def __hash__(self) -> int: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __copy__(self) -> DeviceArray: ...
    def __deepcopy__(self, memo: Any, /) -> DeviceArray: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __arrow_c_device_array__(
        self, requested_schema: CapsuleType | None = None, **keywords: Any
    ) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_array__(self, requested_schema: CapsuleType | None = None) -> tuple[CapsuleType, CapsuleType]: ...

@final
class PinnedArray:
    """An n-dimensional array in pinned host memory, made by ``Device.pinned``. It is the host side of asynchronous
    copies.

    ``array.set(pinned, stream)`` and ``array.get(pinned, stream)`` are enqueued and do not block. NumPy accesses the
    memory without a copy: ``numpy.asarray(pinned)``, and indexing as in NumPy. Both wait for the copies enqueued so
    far. After enqueuing more copies, wait for them before you use the array again."""

    @property
    def device(self) -> Device:
        """The device whose copies can use the memory."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each dimension."""
    @property
    def strides(self) -> tuple[int, ...]:
        """The number of bytes from one element to the next along each dimension."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, a ``numpy.dtype``."""
    @property
    def ndim(self) -> int:
        """The number of dimensions."""
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def itemsize(self) -> int:
        """The number of bytes of one element."""
    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
    @property
    def ptr(self) -> int:
        """The address. Blocks until the copies enqueued so far have finished."""
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class ArrayBuffer:
    """An n-dimensional array with replicas on any number of devices and the host. Each access copies exactly the values
    that are out of date in its place.

    ``ArrayBuffer(source)`` uses the memory of a host array without a copy if it is writable, aligned, in row-major
    order without gaps, and not empty. Otherwise it copies the array. ``copy=True`` forces a copy, and ``copy=False``
    forbids one. A source that is not copied is the host's replica. It shows values written on a device after the next
    access on the host. It must be written only through accesses.

    ``read``, ``read_write`` and ``write`` are accesses, for ``with`` blocks. ``on`` gives the place: a stream, a
    device, or ``"host"``. Without it, the place is the current stream, see ``offload``. On a device, the block gets a
    DeviceArray; on the host, it gets a NumPy array. A write access commits when its block ends. If the block raises,
    the values are poisoned until they are overwritten."""

    def __new__(cls, source: Any, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Self: ...
    @staticmethod
    def empty(shape: _Shape, dtype: DTypeLike | None = None) -> ArrayBuffer:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each dimension."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, a ``numpy.dtype``."""
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
    @property
    def version(self) -> int:
        """The version number. It increases with every committed write, and only then. Accesses commit when their block
        ends."""
    @property
    def status(self) -> str:
        """The status of the values: uninitialized, valid, poisoned or in use."""
    @property
    def transfers(self) -> TransferReport:
        """The transfers so far, and their causes."""
    def is_valid_on(self, place: _Place) -> bool:
        """Whether the values are valid on the device, or on the ``"host"``. If so, reading there copies nothing."""
    def read(self, on: _Place | None = None, *, timeout: float = 60.0) -> ArrayAccess:
        """Accesses the values to read them. Waits at most ``timeout`` seconds for a writer."""
    def read_write(self, on: _Place | None = None, *, timeout: float = 60.0) -> ArrayAccess:
        """Accesses the values to read and write them. Waits at most ``timeout`` seconds for other holders."""
    def write(self, on: _Place | None = None, *, timeout: float = 60.0) -> ArrayAccess:
        """Accesses the array to overwrite it. Nothing is copied, and every element must be written. Waits at most
        ``timeout`` seconds for other holders."""
    def get(self) -> NDArray[Any]:
        """Returns the values as a new NumPy array. Blocks until they are there."""
    def __array__(self, *arguments: Any, **keywords: Any) -> NoReturn: ...
    def prefetch(self, on: _Place | None = None) -> None:
        """Copies the values to a place before they are needed there. On the host it blocks until they are there. Copies
        to a device are enqueued; they block for the bytes beyond 4 MiB, or if earlier copies have not finished. If the
        host's memory is page-locked for the device (``page_lock``), copies in both directions are enqueued, and the
        call returns at once."""
    def page_lock(self, device: Device) -> None:
        """Keeps the host's values in memory that is page-locked for the device, from now on. Copies between that memory
        and the device are then enqueued and do not block. The next access on the host waits for them.

        Values that the host has are locked in place if the device can do that, and copied otherwise. Memory that
        belongs to the source of the buffer is never copied: raises an InvalidArgumentError unless it begins at a memory
        page, and an UnsupportedError if the device cannot lock it. Raises a ConflictError if another device works in
        the host's memory, if it is page-locked already, or if NumPy arrays of earlier accesses still use it; delete
        these arrays first. Does nothing for a device that works in host memory."""
    def evict(self, device: Device) -> None:
        """Frees the memory on a device. Values that exist nowhere else are copied to the host first."""
    def duplicate(self) -> ArrayBuffer:
        """Copies the array into a new, independent array. The copy is made where the values are."""

@final
class ArrayAccess:
    """An access to an ArrayBuffer, for a ``with`` block, which gets the values.

    Do not use the values after the block, nor anything made from them by slicing or by another library. Device arrays
    then raise an error. An array that another library has imported holds the access until it is deleted. On the host,
    the block's own array may show old values and cannot be written. Views of it stay writable, because NumPy does not
    report them. Writes through them after the block may be lost, and race with copies.

    An access that was entered without a ``with`` block and is never left lasts until its array and all views of it are
    deleted."""

    def __enter__(self) -> Any: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class TransferReport:
    """The transfers of an array: source, destination, count, bytes, and the access that needed them."""

    @property
    def count(self) -> int:
        """The number of all transfers."""
    @property
    def bytes(self) -> int:
        """The number of bytes of all transfers."""
    def between(self, origin: str, to: str) -> tuple[int, int]:
        """The count and bytes of transfers between two places: device ids, or ``host``."""

@final
class offload:
    """Makes a stream, or the default stream of a device, the current stream for a ``with`` block.

    Accesses to ArrayBuffers, and operations on DeviceArrays, use the current stream if they name no stream. Blocks
    nest. Entering and leaving a block copies and frees nothing. Each thread has its own current stream, and so has each
    task of an event loop: another task that runs while the block awaits does not see it. A task that is started in the
    block begins with the block's stream."""

    def __new__(cls, to: Stream | Device) -> Self: ...
    def __enter__(self) -> Stream: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class transfer_budget:
    """Limits the bytes that accesses to ArrayBuffers in this thread may move during a ``with`` block. An access beyond
    the limit raises LimitExceededError, and nothing has moved. ``direction`` is any, to_host or to_device. Prefetches
    do not count."""

    def __new__(cls, bytes: int = 0, direction: Literal["any", "to_host", "to_device"] = "any") -> Self: ...
    @property
    def used(self) -> int:
        """The number of bytes that were moved during the block."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class Communicator:
    """A group of ranks that exchange messages, as seen from one rank. The ranks are threads of this process or
    processes of an MPI job.

    A rank leaves the group when its communicator, and every exchange made with it, is deleted. Ranks that wait for it
    then get PeerLostError."""

    @staticmethod
    def threads(size: int) -> list[Communicator]:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @staticmethod
    def mpi(comm: Any, timeout: float = 60.0) -> Communicator:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @property
    def rank(self) -> int:
        """The number of this rank."""
    @property
    def size(self) -> int:
        """The number of ranks."""
    def barrier(self, timeout: float = 60.0) -> None:
        """Blocks until every rank has called it, for at most ``timeout`` seconds."""
    def all_gather(self, mine: bytes, timeout: float = 60.0) -> bytes:
        """Returns the bytes of all ranks in rank order. Every rank passes the same number of bytes. Blocks until every
        rank has called it, for at most ``timeout`` seconds."""
    def reset(self, timeout: float = 60.0) -> None:
        """Makes collective calls (``barrier``, ``all_gather``, creating a ``HaloExchange``) possible again after a
        failure, for example after a rank was late. Until then they raise ConflictError. All ranks call it, also those
        without a failure. Blocks until every rank has called it, for at most ``timeout`` seconds. After a TimeoutError,
        call it again."""

@final
class Topology:
    """A decomposition: the block of cells of each rank, and the neighbours beyond its sides. Every rank makes the same
    topology."""

    @staticmethod
    def cartesian(cells: Sequence[int], ranks: Sequence[int], periodic: Sequence[bool]) -> Topology:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @staticmethod
    def cubed_sphere(cells: int, layout: tuple[int, int]) -> Topology:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @staticmethod
    def of_blocks(
        axes: int,
        blocks: Sequence[tuple[int, int, int]],
        links: Sequence[tuple[int, tuple[int, int, int], int, str]],
    ) -> Topology:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @property
    def ranks(self) -> int:
        """The number of ranks."""
    @property
    def axes(self) -> int:
        """The number of axes."""
    def block(self, rank: int) -> tuple[int, list[int], list[int]]:
        """The tile of a rank's block, its position in the tile, and its number of cells, along x, y and z."""
    def neighbours(self, rank: int) -> list[tuple[list[int], int, str]]:
        """The neighbours of a rank's block: the ends of the side along x, y and z, the rank there, and how this rank's
        axes are oriented in that block."""
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Dim:
    """One dimension of a field. ``Dim.axis`` makes one along an axis of the topology; ``Dim.free`` makes one that is
    not divided."""

    @staticmethod
    def axis(
        axis: int,
        cells: int,
        halo: int | tuple[int, int] = (0, 0),
        *,
        allocated: int | tuple[int, int] | None = None,
        staggered: bool = False,
    ) -> Dim:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @staticmethod
    def free(extent: int) -> Dim:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @property
    def owned(self) -> slice:
        """The slice of the elements that the rank owns."""
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class FieldSpec:
    """A field as one rank has it: element type, dimensions in the order of its shape, and strides. The strides are
    row-major by default. ``order`` gives the dimensions in memory order, slowest first; ``strides`` gives them in
    bytes."""

    def __new__(
        cls,
        name: str,
        dtype: DTypeLike,
        dims: Sequence[Dim],
        *,
        order: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """The name."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements in memory along each dimension, including ghosts."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, a ``numpy.dtype``."""
    @property
    def owned(self) -> tuple[slice, ...]:
        """The slices of the elements that the rank owns: ``array[field.owned]``."""
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Quantity:
    """A physical quantity: one field for each component, and the kind of quantity, which determines how a rotation
    changes it. Kinds: scalar, pseudo_scalar, vector (x, y), unsigned_pair (x, y) or tensor (xx, xy, yx, yy)."""

    def __new__(cls, kind: str, components: Sequence[FieldSpec]) -> Self: ...
    @staticmethod
    def scalar(field: FieldSpec) -> Quantity:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    @staticmethod
    def vector(x: FieldSpec, y: FieldSpec) -> Quantity:
        """staticmethod(function) -> method

        Convert a function to be a static method.

        A static method does not receive an implicit first argument. To declare a static method, use this idiom:

             class C:          @staticmethod          def f(arg1, arg2, argN):              ...

        It can be called either on the class (e.g. C.f()) or on an instance (e.g. C().f()). Both the class and the
        instance are ignored, and neither is passed implicitly as the first argument to the method.

        Static methods in Python are similar to those found in Java or C++. For a more advanced concept, see the
        classmethod builtin."""
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class HaloExchange:
    """Fills the halos of a set of fields with the values that the neighbours own there. It can be used repeatedly.

    All ranks create it together, with the same topology, quantities and options, and call the same methods in the same
    order. If a rank is late, all ranks call ``Communicator.reset`` and create it again. ``fields`` are DeviceArrays,
    one for each component of each quantity, in order. They must not share elements. Work is enqueued on ``stream``:
    packing comes after earlier work there, and later work sees the filled halos. Without a stream, the work comes after
    all unfinished work on the fields. Until the call returns, other threads that use the fields get ConflictError: an
    operation of this package, another exchange, or an export. Other libraries are not seen.

    ``reach`` is full, or faces for stencils without diagonals. ``missing_corners`` says what happens where tiles meet
    without a cell: these corners are left unchanged (None), set to a number, or set to an ``"average"``. Exchanges that
    use one communicator at the same time need different ``channel`` numbers."""

    def __new__(
        cls,
        communicator: Communicator,
        topology: Topology,
        quantities: Sequence[Quantity],
        device: Device,
        *,
        timeout: float = 60.0,
        reach: Literal["full", "faces", "by_axis"] = "full",
        missing_corners: float | Literal["average"] | None = None,
        direct: bool = True,
        timing: bool = False,
        channel: int = 0,
    ) -> Self: ...
    def exchange(self, fields: Sequence[DeviceArray], stream: Stream | None = None) -> None:
        """Fills the halos. Blocks until the messages have arrived, but not until the device has unpacked them."""
    def overlap(
        self, fields: Sequence[DeviceArray], work: Callable[[Progress], _R], stream: Stream | None = None
    ) -> _R:
        """Fills the halos while ``work(progress)`` runs, and returns the result of ``work``. The work enqueues
        operations that need no ghosts, and calls ``progress.poll()`` regularly to advance the messages. It may read the
        fields. Operations that write them raise ConflictError, and other libraries get them read-only. A kernel that
        does not declare what it writes must not write them."""
    def reduce(self, fields: Sequence[DeviceArray], op: str, stream: Stream | None = None) -> None:
        """Combines each owned element with all ghosts that are copies of it, by ``op``: replace, sum, min or max. This
        is the reverse of an exchange."""
    def synchronize_shared(self, fields: Sequence[DeviceArray], stream: Stream | None = None) -> None:
        """Makes the points that two ranks share equal on both, for staggered fields."""
    def reset(self) -> None:
        """Makes exchanges and their collective calls possible again after a failure. All ranks call it together. After
        a TimeoutError, call it again. Messages from before do not disturb later exchanges, unless they are 15 resets
        late: then an exchange fails, and must be reset too."""
    def statistics(self) -> dict[int, dict[str, tuple[int, int]]]:
        """The number of messages and bytes sent, received and copied so far for each neighbour rank, as a dict of
        pairs."""

@final
class Progress:
    """An exchange in flight, lent to the overlapping work."""

    def poll(self) -> bool:
        """Advances the exchange without waiting. Returns whether nothing is left to do."""
