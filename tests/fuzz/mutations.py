"""Damage a valid file at random: bytes of any file, values of JSON, lines of text."""

import json
import random
from collections.abc import Callable
from typing import Any

ODD_NUMBERS = (0, 1, 2, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1)
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 1000, 10**8, 2**31 - 1, 2**32, 2**63, 10**30, 0.5, -0.5, 1e308,
    "", "x", "7", "-1", "é", "\ud800", "nan", "../../etc/passwd", "a" * 5000, [], {}, [[]], [1],
    ["x", 2], {"a": 1}, {"content": 3}, [1e9] * 50,
)  # fmt: skip
ODD_JSON = (b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 20_000, b'{"a":' * 20_000, b"\xff")
ODD_WORDS = (
    b"", b" ", b"\0", b"\xff\xfe", b"\xed\xa0\x80", "\ufeff".encode(), b"nan", b"-1", b"1e999",
    b"9" * 400, b"\t" * 40, b'"', b"'''", b"\r", b"\x85", b"x" * 3000, b"{{", b"]]", b"{|", b"<!--",
    b"<page>", b"</page>", b"<text>", b"&#0;", b"&lol;", b"<![CDATA[", b"!!python/name:os.system",
    b"*a", b"&a", b"? :", b"- - -", b"{a: [", b"${oc.env:HOME}", b"${a}", b"${", b"<<: *a", b"%",
    b"_target_: os.getcwd", b"defaults:", b"null", b"0x7fffffffffffffff", b"-DOCSTART-",
    b"B-", b"O",
)  # fmt: skip

Mutation = Callable[[bytes, random.Random], bytes]


def mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    """Flip, overwrite, cut, repeat or move bytes, once or a few times."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        data = draw.choice(BYTE_CHANGES)(data, draw)
    return data


def mutate_json(data: bytes, draw: random.Random) -> bytes:
    """Replace, remove or rename values of a JSON file; sometimes damage its text too."""
    value = json.loads(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        value = _change_value(value, draw)
    text = json.dumps(value).encode()
    kind = draw.random()
    if kind < 0.1:
        return mutate_bytes(text, draw)
    if kind < 0.2:  # what json.dumps would not write
        place = draw.randrange(len(text) + 1)
        return text[:place] + draw.choice(ODD_JSON) + text[place:]
    return text


def mutate_text(data: bytes, draw: random.Random) -> bytes:
    """Remove, repeat, swap and edit lines; sometimes damage bytes."""
    lines = data.split(b"\n")
    for _ in range(draw.choice((1, 1, 2, 4))):
        here, there = (draw.randrange(len(lines)) for _ in range(2))
        change = draw.randrange(5)
        if change == 0 and len(lines) > 1:
            del lines[here]
        elif change == 1:
            lines[here:here] = [lines[there]] * draw.choice((1, 2, 30))
        elif change == 2:
            lines[here], lines[there] = lines[there], lines[here]
        else:
            lines[here] = _edit(lines[here], draw)
    text = b"\n".join(lines)
    return mutate_bytes(text, draw) if draw.random() < 0.2 else text


def mutate_safetensors(data: bytes, draw: random.Random) -> bytes:
    """Change the JSON header and state its new length, or damage any bytes."""
    if draw.random() < 0.4:
        return mutate_bytes(data, draw)
    end = 8 + int.from_bytes(data[:8], "little")
    header = mutate_json(data[8:end], draw)
    return len(header).to_bytes(8, "little") + header + data[end:]


def mutate_npy(data: bytes, draw: random.Random) -> bytes:
    """Change the text of the header within its length, or damage any bytes."""
    if draw.random() < 0.4:
        return mutate_bytes(data, draw)
    end = 10 + int.from_bytes(data[8:10], "little")
    header = draw.choice(
        (
            data[10:end].replace(
                b"<f4", draw.choice((b"<c8", b"|O", b"<i8", b">f2", b"|V9", b"x"))
            ),
            data[10:end].replace(b"(4", b"(%d" % draw.choice((0, -1, 10**9, 2**62, 2**64))),
            data[10:end].replace(b"False", draw.choice((b"True", b"1", b"None", b"[]"))),
            _edit(data[10:end], draw),
        )
    )
    return data[:8] + len(header).to_bytes(4, "little")[:2] + header + data[end:]


def _change_value(value: Any, draw: random.Random) -> Any:
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        change = draw.random()
        if change < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if change < 0.15:
            return value | {str(draw.choice(ODD_VALUES)): value[key]}
        return value | {key: _change_value(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        if draw.random() < 0.2:
            return value[:place] + value[place:] * draw.choice((0, 2, 20))
        return [*value[:place], _change_value(value[place], draw), *value[place + 1 :]]
    return draw.choice(ODD_VALUES)


def _edit(line: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(line) + 1) for _ in range(2))
    if draw.random() < 0.5:
        end = start
    return line[:start] + draw.choice(ODD_WORDS) + line[end:]


def _flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8)) if data else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _overwrite_number(data: bytes, draw: random.Random) -> bytes:
    size = draw.choice((1, 2, 4, 8))
    number = draw.choice(ODD_NUMBERS) % 2 ** (8 * size)
    # Headers are at the beginning; half of all changes go there.
    place = draw.randrange(max(1, min(len(data), 128) if draw.random() < 0.5 else len(data)))
    packed = number.to_bytes(size, draw.choice(("little", "big")))
    return data[:place] + packed + data[place + size :]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _remove(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + data[start + draw.choice((1, 4, 16, 100)) :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    start, to = (draw.randrange(len(data) + 1) for _ in range(2))
    part = data[start : start + draw.choice((1, 8, 64, 1000))]
    return data[:to] + part * draw.choice((1, 2, 50)) + data[to:]


def _zero(data: bytes, draw: random.Random) -> bytes:
    start, size = draw.randrange(len(data) + 1), draw.choice((4, 16, 200))
    return data[:start] + bytes(len(data[start : start + size])) + data[start + size :]


BYTE_CHANGES: tuple[Mutation, ...] = (_flip, _flip, _overwrite_number, _overwrite_number, _cut,
                                      _remove, _repeat, _zero)  # fmt: skip
