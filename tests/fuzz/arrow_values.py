"""Arrow arrays of every type, with the extreme and the invalid values that its buffers can hold."""

import random
from collections.abc import Callable

import pyarrow as pa

UNITS = ("s", "ms", "us", "ns")

FIXED: list[pa.DataType] = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64()),
    *(pa.decimal32(5, 2), pa.decimal64(18, 0), pa.decimal128(5, 2), pa.decimal128(38, -3), pa.decimal256(76, 70)),
    *(pa.decimal128(38, 38), pa.decimal256(76, 0), pa.decimal256(76, -10), pa.decimal64(10, -2)),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.month_day_nano_interval()),
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in ("UTC", "Europe/Berlin", "+05:30")),
    *(pa.duration(unit) for unit in UNITS),
    *(pa.binary(1), pa.binary(16)),
]
"""Types whose values have a fixed number of bytes."""

TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
ODD_BYTES = [b"", b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"x" * 70_000, b"9" * 400, b"1e999", b"-inf", b"NaN", b"=1+1"]
GOOD_BYTES = [b"1", b"a", b"2020-01-01"]


def all_types() -> list[pa.DataType]:
    """Every type of Arrow, nested ones and those of other storage with a few inner types each."""
    inner = [pa.time64("us"), pa.string(), pa.decimal128(5, 2), pa.timestamp("s"), pa.float16(), pa.date64()]
    plain = [pa.null(), *FIXED, *TEXTS]
    coded = [each for each in plain if each not in (pa.null(), pa.float16())]
    wrapped: list[Callable[[pa.DataType], pa.DataType]] = [
        pa.list_,
        pa.large_list,
        pa.list_view,
        lambda type: pa.list_(type, 1),
        lambda type: pa.struct([("f", type)]),
        lambda type: pa.map_(pa.string(), type),
        lambda type: pa.sparse_union([pa.field("f", type)]),
        lambda type: pa.dense_union([pa.field("f", type)]),
    ]
    return [
        *plain,
        *(pa.dictionary(pa.int8(), each) for each in coded),
        *(pa.run_end_encoded(pa.int32(), each) for each in plain if each != pa.null()),
        *(wrap(each) for wrap in wrapped for each in inner),
        *(
            pa.uuid(),
            pa.bool8(),
            pa.json_(),
            pa.opaque(pa.time64("us"), "t", "v"),
            pa.fixed_shape_tensor(pa.int32(), [1]),
        ),
    ]


def fixed(type: pa.DataType, cells: list[bytes]) -> pa.Array:
    """Values by their bytes, whatever these mean; empty bytes are null."""
    width = type.bit_width // 8
    bits = bytearray(-(-len(cells) // 8))
    for at, cell in enumerate(cells):
        bits[at // 8] |= bool(cell) << at % 8
    data = b"".join(cell or bytes(width) for cell in cells)
    if pa.types.is_boolean(type):
        return pa.array([None if not cell else bool(cell[0] & 1) for cell in cells], type)
    return pa.Array.from_buffers(type, len(cells), [pa.py_buffer(bytes(bits)), pa.py_buffer(data)])


def values_of(type: pa.DataType, number: int, odd: bool, rng: random.Random) -> pa.Array:
    """This many values: ordinary ones, or extreme, invalid and random ones."""
    types = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, values_of(type.storage_type, number, odd, rng))
    if types.is_null(type):
        return pa.nulls(number)
    if types.is_dictionary(type):
        own = values_of(type.value_type, number, odd, rng)
        codes = pa.array([None if odd and at == 0 else at for at in range(number)], type.index_type)
        return pa.DictionaryArray.from_arrays(codes, own)
    if types.is_run_end_encoded(type):
        ends = pa.array(range(1, number + 1), type.run_end_type)
        return pa.Array.from_buffers(
            type, number, [None], children=[ends, values_of(type.value_type, number, odd, rng)]
        )
    if types.is_nested(type):
        return _nested(type, number, odd, rng)
    if type in TEXTS:
        cells = [rng.choice(ODD_BYTES if odd and at else [b"\xff\xfe"] if odd else GOOD_BYTES) for at in range(number)]
        return _as_texts(cells, type)
    width = max(type.bit_width // 8, 1)
    return fixed(type, [_odd_cell(width, at, rng) if odd else _plain_cell(type, width) for at in range(number)])


def _nested(type: pa.DataType, number: int, odd: bool, rng: random.Random) -> pa.Array:
    types = pa.types
    if types.is_struct(type):
        return pa.StructArray.from_arrays([values_of(type[0].type, number, odd, rng)], fields=[type[0]])
    if types.is_union(type):
        own, codes = values_of(type[0].type, number, odd, rng), pa.array([0] * number, pa.int8())
        if type.mode == "sparse":
            return pa.UnionArray.from_sparse(codes, [own], ["f"])
        return pa.UnionArray.from_dense(codes, pa.array(range(number), pa.int32()), [own], ["f"])
    inner = type.item_type if types.is_map(type) else type.value_type
    own, offsets = values_of(inner, number, odd, rng), list(range(number + 1))
    if types.is_map(type):
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(["k"] * number), own)
    if types.is_fixed_size_list(type):
        return pa.FixedSizeListArray.from_arrays(own, 1)
    if types.is_list_view(type):
        return pa.ListViewArray.from_arrays(pa.array(offsets[:-1], pa.int32()), pa.array([1] * number, pa.int32()), own)
    made, width = (pa.LargeListArray, pa.int64()) if types.is_large_list(type) else (pa.ListArray, pa.int32())
    return made.from_arrays(pa.array(offsets, width), own)


def _as_texts(cells: list[bytes], type: pa.DataType) -> pa.Array:
    """Bytes in a type of texts, also if they are not UTF-8."""
    own = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    found = pa.array(cells, own.get(type, type))
    if type == found.type:
        return found
    return pa.Array.from_buffers(type, len(found), found.buffers())


def _odd_cell(width: int, at: int, rng: random.Random) -> bytes:
    """The bytes of value `at`: first the ends of signed and unsigned ranges, then any numbers and null."""
    largest, bits = 256**width, 8 * width
    ends = [largest // 2 - 1, largest // 2, largest - 1, 0, 1]
    if at < len(ends):
        return ends[at].to_bytes(width, "little")
    powers = [2 ** rng.randrange(bits), largest - 2 ** rng.randrange(bits), 10 ** rng.randrange(len(str(largest)) - 1)]
    return b"" if rng.random() < 0.1 else rng.choice([*powers, rng.randrange(largest)]).to_bytes(width, "little")


def _plain_cell(type: pa.DataType, width: int) -> bytes:
    if pa.types.is_date64(type):
        return (86_400_000).to_bytes(width, "little")
    return (1).to_bytes(width, "little")
