"""The two languages of the worker: JSON lines with its client, binary structs with a runner.

Invariants:
- whatever bytes a runner sends, reading them gives a message or one of three channel errors;
- whatever text a client sends, reading it gives a request or a `ProtocolError`;
- what the runner's half writes, the judge's half reads as the same.
"""

import contextlib
import json
import socket
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.ipc import messages
from evolve.worker.ipc.messages import (
    ChannelClosed,
    ChannelFault,
    DeadlineExceeded,
    ErrorKind,
    Reply,
)
from evolve.worker.service import protocol

PARSERS = (messages.parse_ready, messages.parse_error, messages.parse_done, messages.parse_output)
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
DTYPES = st.sampled_from(messages.DTYPES)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def soon() -> float:
    return time.monotonic() + 0.2


@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_or_a_fault(data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.close()
        try:
            reply, _ = messages.receive_reply(ours, soon())
            assert reply in Reply
        except (ChannelFault, ChannelClosed):
            pass


@given(st.binary(max_size=200))
def test_any_body_is_parsed_or_refused(body):
    for parse in PARSERS:
        with contextlib.suppress(ChannelFault):
            parse(body)


@given(st.lists(st.tuples(SHAPES, DTYPES), max_size=5), st.floats(0, 10))
def test_an_outputs_descriptors_arrive_as_they_were_sent(kinds, seconds):
    tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in kinds]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send_output(theirs, seconds, 4096, b"(T,T)", tensors)
        reply, body = messages.receive_reply(ours, soon())
    output = messages.parse_output(body)
    assert reply is Reply.OUTPUT
    assert (output.seconds, output.inputs_at, output.tree) == (seconds, 4096, b"(T,T)")
    for at, tensor in zip(output.tensors, tensors, strict=True):
        assert (at.dtype, at.shape, at.stride) == (tensor.dtype, tensor.shape, tensor.stride())
        assert at.address == tensor.data_ptr()


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_the_addresses_of_a_block_arrive_as_they_were_sent(addresses):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send_done(theirs, 0.5, addresses)
        _, body = messages.receive_reply(ours, soon())
    assert messages.parse_done(body) == messages.Done(0.5, tuple(addresses))


def test_an_error_arrives_clipped_and_printable(pair):
    ours, theirs = pair
    messages.send_error(theirs, ErrorKind.OOM, "\x1b[1m" + "x" * 100_000)
    kind, text = messages.parse_error(messages.receive_reply(ours, soon())[1])
    assert kind is ErrorKind.OOM
    assert len(text) <= messages.MAX_TEXT
    assert "\x1b" not in text


def test_an_oversized_message_is_refused_before_it_is_read(pair):
    ours, theirs = pair
    theirs.sendall(messages._REPLY.pack(messages.MAGIC, Reply.DONE, messages.MAX_BODY + 1))
    with pytest.raises(ChannelFault):
        messages.receive_reply(ours, soon())


def test_half_a_message_is_waited_for_until_the_deadline(pair):
    ours, theirs = pair
    theirs.sendall(messages._REPLY.pack(messages.MAGIC, Reply.DONE, 100) + b"half")
    with pytest.raises(DeadlineExceeded):
        messages.receive_reply(ours, soon())


def test_commands_arrive_with_their_descriptors(pair):
    ours, theirs = pair
    with open("/dev/null") as null:  # noqa: PTH123 - the descriptor is the point
        messages.send_command(ours, ("call", 1, b"x" * 3_000), (null.fileno(),))
        command, (fd,) = messages.receive_command(theirs)
    assert command == ("call", 1, b"x" * 3_000)
    socket.close(fd)


@given(st.text(max_size=200))
def test_any_line_is_a_request_or_a_protocol_error(line):
    try:
        protocol.parse_request(line)
    except protocol.ProtocolError as error:
        assert str(error)


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(),
                    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)))  # fmt: skip
def test_any_json_is_a_request_or_a_protocol_error(value):
    try:
        protocol.parse_request(json.dumps(value))
    except protocol.ProtocolError as error:
        assert str(error)


@given(st.integers(0, 2**40), st.text(min_size=1), st.dictionaries(st.text(), st.integers()))
def test_a_request_is_read_as_it_was_written(number, method, params):
    line = json.dumps({"v": 1, "id": number, "method": method, "params": params})
    assert protocol.parse_request(line) == protocol.Request(number, method, params)


def test_replies_are_one_line_each():
    for line in (protocol.result(1, {"a": "x\ny"}), protocol.failure(None, "usage", "a\nb")):
        assert line.count("\n") == 1
        assert json.loads(line)["v"] == 1
