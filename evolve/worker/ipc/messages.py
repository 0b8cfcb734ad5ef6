"""Messages between the judge and a runner, over one Unix stream socket.

The two directions are not alike. The judge is trusted by the runner, so its commands are pickles
with file descriptors attached. The runner is not trusted: it sends fixed binary structs with hard
size limits, and anything malformed is the candidate's fault (`ChannelFault`), never an error of the
judge. Nothing here is authority: a message carries addresses and shapes to look at, text for
feedback, and a diagnostic time.
"""

import array
import io
import pickle
import select
import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

DRIVERS_SHORTAGE = "CUDA error: out of memory"  # as torch words it
MAGIC = b"EVR1"
MAX_BODY = 1 << 20
MAX_TEXT = 8 << 10
MAX_TENSORS = 256
MAX_DIMS = 16
MAX_FDS = 8

DTYPES: tuple[torch.dtype, ...] = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
    torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip

_COMMAND = struct.Struct("<4sI")
_REPLY = struct.Struct("<4sBI")
_READY = struct.Struct("<IQ")  # sandbox mechanisms, an address that can be read
_ERROR = struct.Struct("<B")
_OUTPUT = struct.Struct("<dQHH")  # in-process seconds, address of the inputs, tensors, tree bytes
_TENSOR = struct.Struct("<BBQ")  # dtype code, dimensions, address of the first element
_DONE = struct.Struct("<dI")  # in-process seconds, number of addresses


class Reply(IntEnum):
    """Kinds of message that a runner may send."""

    READY = 1
    ACK = 2
    OUTPUT = 3
    DONE = 4
    ERROR = 5
    TEXT = 6
    ASIDE = 7
    BACK = 8


class ErrorKind(IntEnum):
    """The error as the runner's stub reports it; a hint among failures, never a success."""

    EXCEPTION = 0
    INTERFACE = 1
    COMPILE = 2
    OOM = 3
    TREE = 4
    ILLEGAL_ACCESS = 5
    ASSERT = 6


class ChannelFault(Exception):
    """The runner sent something that is no message, or ended in the middle of one."""


class ChannelClosed(Exception):
    """The runner's end is gone; how it ended is for the guard to say."""


class DeadlineExceeded(Exception):
    """No complete answer before the deadline."""


@dataclass(frozen=True, slots=True)
class TensorAt:
    """A tensor's place in the runner's memory, as the runner claims. `stride` counts elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    address: int


@dataclass(frozen=True, slots=True)
class Output:
    """Descriptors of one call's output tree, as the runner gives them."""

    seconds: float
    inputs_at: int
    tree: bytes
    tensors: tuple[TensorAt, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A block is finished: the address of every tensor of every output, call by call."""

    seconds: float
    addresses: tuple[int, ...]


# --- the judge's side -------------------------------------------------------------------------


def send_command(sock: socket.socket, command: tuple[Any, ...], fds: tuple[int, ...] = ()) -> None:
    """Send a pickled command with its descriptors; at most `MAX_FDS` of them.

    Raises:
        ChannelClosed: the runner is gone.
    """
    body = pickle.dumps(command, protocol=5)
    message = _COMMAND.pack(MAGIC, len(body)) + body
    try:
        sent = socket.send_fds(sock, [message], list(fds))
        sock.sendall(message[sent:])
    except TimeoutError as error:
        raise DeadlineExceeded from error
    except OSError as error:
        raise ChannelClosed from error


def receive_reply(sock: socket.socket, deadline: float) -> tuple[Reply, bytes]:
    """The next message from a runner, before `deadline` on the monotonic clock.

    Raises:
        ChannelFault, ChannelClosed, DeadlineExceeded: see there.
    """
    magic, kind, size = _REPLY.unpack(_receive_exactly(sock, _REPLY.size, deadline, start=True))
    if magic != MAGIC or size > MAX_BODY:
        raise ChannelFault("the candidate's process wrote to its control channel")
    try:
        reply = Reply(kind)
    except ValueError as error:
        raise ChannelFault("the candidate's process wrote to its control channel") from error
    return reply, _receive_exactly(sock, size, deadline)


def _receive_exactly(sock: socket.socket, size: int, deadline: float, start: bool = False) -> bytes:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    buffer = bytearray()
    while len(buffer) < size:
        left = max(0.0, deadline - time.monotonic())
        if not poller.poll(left * 1000):  # bytes that are there now came in time
            raise DeadlineExceeded
        try:
            chunk = sock.recv(size - len(buffer))
        except OSError as error:
            raise ChannelClosed from error
        if not chunk:
            if start and not buffer:
                raise ChannelClosed
            raise ChannelFault("the candidate's process closed its control channel in a message")
        buffer += chunk
    return bytes(buffer)


def parse_ready(body: bytes) -> tuple[int, int, str]:
    """The mask of sandbox mechanisms, an address to try reading, why mechanisms are lacking."""
    mask, address = _unpack(_READY, body, 0)
    return mask, address, _text(body[_READY.size :])


def parse_error(body: bytes) -> tuple[ErrorKind, str]:
    """The stub's account of a failure."""
    (code,) = _unpack(_ERROR, body, 0)
    try:
        kind = ErrorKind(code)
    except ValueError as error:
        raise ChannelFault("unknown kind of error") from error
    return kind, _text(body[_ERROR.size :])


def parse_text(body: bytes) -> str:
    """Something to be read with suspicion."""
    return _text(body)


def parse_done(body: bytes) -> Done:
    """The end of a block."""
    seconds, count = _unpack(_DONE, body, 0)
    if len(body) != _DONE.size + 8 * count:
        raise ChannelFault("a block's answer has the wrong length")
    return Done(seconds, struct.unpack_from(f"<{count}Q", body, _DONE.size))


def parse_output(body: bytes) -> Output:
    """Read descriptors; every number is checked for sense before it is used."""
    seconds, inputs_at, count, tree_size = _unpack(_OUTPUT, body, 0)
    at = _OUTPUT.size + tree_size
    if count > MAX_TENSORS or len(body) < at:
        raise ChannelFault("an output's descriptors have the wrong length")
    tensors = []
    for _ in range(count):
        tensor, at = _parse_tensor(body, at)
        tensors.append(tensor)
    if at != len(body):
        raise ChannelFault("an output's descriptors have the wrong length")
    return Output(seconds, inputs_at, body[_OUTPUT.size : _OUTPUT.size + tree_size], tuple(tensors))


def _parse_tensor(body: bytes, at: int) -> tuple[TensorAt, int]:
    code, dims, address = _unpack(_TENSOR, body, at)
    if code >= len(DTYPES) or dims > MAX_DIMS:
        raise ChannelFault("a tensor's descriptor names an unknown dtype or too many dimensions")
    at += _TENSOR.size
    numbers = _unpack(struct.Struct(f"<{2 * dims}q"), body, at)
    if any(not 0 <= number < 1 << 48 for number in numbers):
        raise ChannelFault("a tensor's descriptor has a shape or stride that cannot be")
    return TensorAt(DTYPES[code], numbers[:dims], numbers[dims:], address), at + 16 * dims


def _unpack(layout: struct.Struct, body: bytes, at: int) -> tuple[Any, ...]:
    try:
        return layout.unpack_from(body, at)
    except struct.error as error:
        raise ChannelFault("a message is too short") from error


def _text(data: bytes) -> str:
    return sanitise(data[:MAX_TEXT].decode(errors="replace"))


def sanitise(text: str) -> str:
    """Printable text: control characters (terminal escapes too) are dropped."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable())


# --- the runner's side --------------------------------------------------------------------------


def receive_command(sock: socket.socket) -> tuple[tuple[Any, ...], list[int]]:
    """The next command and its descriptors; `EOFError` when the judge is gone."""
    header, fds = _receive_header(sock)
    _, size = _COMMAND.unpack(header)
    body = bytearray()
    while len(body) < size:
        chunk = sock.recv(min(size - len(body), 1 << 20))
        if not chunk:
            raise EOFError
        body += chunk
    return pickle.loads(body), fds


def _receive_header(sock: socket.socket) -> tuple[bytes, list[int]]:
    slots = array.array("i")
    message, ancillary, _, _ = sock.recvmsg(
        _COMMAND.size, socket.CMSG_SPACE(MAX_FDS * slots.itemsize), socket.MSG_WAITALL
    )
    if len(message) < _COMMAND.size:
        raise EOFError
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            slots.frombytes(data[: len(data) - len(data) % slots.itemsize])
    return message, list(slots)


def _send(sock: socket.socket, kind: Reply, body: bytes) -> None:
    sock.sendall(_REPLY.pack(MAGIC, kind, len(body)) + body)


def send_ready(sock: socket.socket, mask: int, reasons: str, folder: int) -> None:
    """Say that the process is confined, and how far, and show the folder that it writes to."""
    body = _READY.pack(mask, id(reasons)) + reasons.encode()[:MAX_TEXT]
    message = _REPLY.pack(MAGIC, Reply.READY, len(body)) + body
    sock.sendall(message[socket.send_fds(sock, [message], [folder]) :])


def send_ack(sock: socket.socket) -> None:
    """Say that a command without an outcome is done."""
    _send(sock, Reply.ACK, b"")


def send_aside(sock: socket.socket) -> None:
    """Say that nothing is asked of the device until `come_back`."""
    _send(sock, Reply.ASIDE, b"")


def come_back(sock: socket.socket) -> None:
    """Say that the device is wanted again, and wait until that may be.

    Raises:
        EOFError: the judge is gone.
    """
    _send(sock, Reply.BACK, b"")
    receive_command(sock)


def send_error(sock: socket.socket, kind: ErrorKind, text: str) -> None:
    """Say that a command failed."""
    _send(sock, Reply.ERROR, _ERROR.pack(kind) + text.encode(errors="replace")[:MAX_TEXT])


def send_text(sock: socket.socket, text: str) -> None:
    """Say something; no more than `MAX_TEXT` bytes of it arrive."""
    _send(sock, Reply.TEXT, text.encode(errors="replace")[:MAX_TEXT])


def send_done(sock: socket.socket, seconds: float, addresses: list[int]) -> None:
    """Say that a block is done, and where its outputs lie."""
    count = len(addresses)
    _send(sock, Reply.DONE, _DONE.pack(seconds, count) + struct.pack(f"<{count}Q", *addresses))


def send_output(
    sock: socket.socket, seconds: float, inputs_at: int, tree: bytes, tensors: list[torch.Tensor]
) -> None:
    """Say where one call's outputs lie."""
    body = io.BytesIO()
    body.write(_OUTPUT.pack(seconds, inputs_at, len(tensors), len(tree)) + tree)
    for tensor in tensors:
        dims = tensor.dim()
        body.write(_TENSOR.pack(DTYPES.index(tensor.dtype), dims, tensor.data_ptr()))
        body.write(struct.pack(f"<{2 * dims}q", *tensor.shape, *tensor.stride()))
    _send(sock, Reply.OUTPUT, body.getvalue())
