# mypy: ignore-errors
# ruff: noqa: F821
"""The preprocessing of clips as a part of an ONNX graph: from frames of bytes, of any size, to what the network takes.

It repeats `data/clips/transforms.py` to the bit. torch scales bytes in integers: the weights of a pixel's neighbours
are rounded to 16 bits, and the picture is rounded to bytes after its rows are scaled and again after its columns. Here
each of the two is a matrix product with those weights, whose upper and lower bytes are multiplied separately, because
`MatMulInteger` multiplies bytes. Only the rows and columns of the wanted crop are computed.

The functions are ONNX functions, written in the part of Python that onnxscript translates.

mypy is off: what is written below are ONNX operators and names of axes, which it takes for Python.

Legend: B clips, T frames, H height, W width, C colours, N = B x T x C planes.
"""

import numpy as np
import onnx
from onnx import numpy_helper
from onnxscript import opset20 as op
from onnxscript import script
from onnxscript.onnx_types import FLOAT, INT64, UINT8

from fixformer.config import ClipSpec

OPSET = 20
# The inputs of the graph, and what the network is given. `crop` may be left out: 0 left or top, 1 middle, 2 right or
# bottom.
FRAMES, CROP, CLIP = "frames", "crop", "clip"
UINT8_, INT32_, INT64_, UINT32_, FLOAT_, DOUBLE_ = 2, 6, 7, 12, 1, 11  # onnx.TensorProto


@script()
def line_weights(length: INT64, scaled: INT64, antialias: INT64):
    """`[scaled, length]`: the weights of a line's pixels in those of the scaled line, in units of 2^-precision.

    The formulas and the precision, the highest at which the weights have 16 bits, are those of torch.
    """
    ratio = op.Cast(length, to=DOUBLE_) / op.Cast(scaled, to=DOUBLE_)
    reach = op.Where(antialias > 0, op.Max(ratio, 1.0), op.CastLike(1.0, ratio))
    centre = op.Unsqueeze(ratio * (op.Cast(op.Range(0, scaled, 1), to=DOUBLE_) + 0.5), [1])
    place = op.Unsqueeze(op.Cast(op.Range(0, length, 1), to=DOUBLE_), [0])
    near = op.And(place >= op.Floor(centre - reach + 0.5), place < op.Floor(centre + reach + 0.5))
    share = op.Cast(near, to=DOUBLE_) * op.Max(1.0 - op.Abs((place - centre + 0.5) / reach), 0.0)
    share = share / op.ReduceSum(share, [1], keepdims=1)
    powers = op.Pow(op.CastLike(2.0, ratio), op.Cast(op.Range(1, 23, 1), to=DOUBLE_))
    fits = op.Floor(op.ReduceMax(share, keepdims=0) * powers + 0.5) < 32768.0
    precision = op.ReduceSum(op.Cast(fits, to=INT64_), keepdims=0)
    units = op.Floor(share * op.Pow(op.CastLike(2.0, ratio), op.Cast(precision, to=DOUBLE_)) + 0.5)
    return op.Cast(units, to=UINT32_), precision


@script()
def rounded(high, low, precision: INT64):
    """Bytes of the sums of the weights' upper and lower bytes with pixels, rounded half up."""
    half = op.BitShift(op.Cast(1, to=UINT32_), op.Cast(precision - 1, to=UINT32_), direction="LEFT")
    total = op.Cast(high * 256 + low, to=UINT32_) + half
    return op.Cast(op.Min(op.BitShift(total, op.Cast(precision, to=UINT32_), direction="RIGHT"), 255), to=UINT8_)


@script()
def scale_columns(planes_NHW: UINT8, columns: INT64, first: INT64, count: INT64, antialias: INT64):
    """The picture scaled to a width, of which `count` columns from `first` are made."""
    width = op.Gather(op.Shape(planes_NHW), 2)
    units, precision = line_weights(width, columns, antialias)
    part = op.Transpose(op.Slice(units, op.Unsqueeze(first, [0]), op.Unsqueeze(first + count, [0]), [0]))
    eight = op.Cast(8, to=UINT32_)
    high = op.Cast(op.BitShift(part, eight, direction="RIGHT"), to=UINT8_)
    low = op.Cast(op.Mod(part, op.Cast(256, to=UINT32_)), to=UINT8_)
    return rounded(op.MatMulInteger(planes_NHW, high), op.MatMulInteger(planes_NHW, low), precision)


@script()
def scale_rows(planes_NHW: UINT8, rows: INT64, first: INT64, count: INT64, antialias: INT64):
    """The picture scaled to a height, of which `count` rows from `first` are made."""
    height = op.Gather(op.Shape(planes_NHW), 1)
    units, precision = line_weights(height, rows, antialias)
    part = op.Slice(units, op.Unsqueeze(first, [0]), op.Unsqueeze(first + count, [0]), [0])
    eight = op.Cast(8, to=UINT32_)
    high = op.Cast(op.BitShift(part, eight, direction="RIGHT"), to=UINT8_)
    low = op.Cast(op.Mod(part, op.Cast(256, to=UINT32_)), to=UINT8_)
    return rounded(op.MatMulInteger(high, planes_NHW), op.MatMulInteger(low, planes_NHW), precision)


def preprocessing(spec: ClipSpec) -> onnx.ModelProto:
    """A graph from `frames` (uint8 `[B, T, H, W, 3]`) and `crop` to `clip` (float32 `[B, 3, T, size, size]`)."""
    side, size, squeezes = spec.test_short_side, spec.size, int(spec.fit == "squeeze")
    focus = numpy_helper.from_array(np.array(spec.focus, np.float64))
    antialias, keeps, kept = int(spec.antialias), int(spec.keep_short_side is not None), spec.keep_short_side or 1
    tail = numpy_helper.from_array(np.array([3, size, size]))
    scale = numpy_helper.from_array(np.array([1 / (255 * s) for s in spec.std], np.float32).reshape(3, 1, 1, 1))
    shift = numpy_helper.from_array(
        np.array([-m / s for m, s in zip(spec.mean, spec.std, strict=True)], np.float32).reshape(3, 1, 1, 1)
    )

    @script()
    def graph(frames: UINT8["B", "T", "H", "W", 3], crop: INT64) -> FLOAT["B", 3, "T", "S", "S"]:
        shape = op.Shape(frames)
        planes = op.Reshape(op.Transpose(frames, perm=[0, 1, 4, 2, 3]), op.Concat([-1], shape[2:4], axis=0))
        height, width = op.Gather(shape, 2), op.Gather(shape, 3)
        short = op.Min(height, width)
        # first as frames are kept when they are decoded: nothing is left to do if they were
        if op.And(short != kept, keeps == 1):
            columns, rows = width * kept / short, height * kept / short
            wide = scale_columns(planes, columns, 0, columns, 1)
            stored = scale_rows(wide, rows, 0, rows, 1)
        else:
            stored = op.Identity(planes)
        height, width = op.Gather(op.Shape(stored), 1), op.Gather(op.Shape(stored), 2)
        short = op.Min(height, width)
        columns = op.Where(squeezes == 1, op.CastLike(side, short), width * side / short)
        rows = op.Where(squeezes == 1, op.CastLike(side, short), height * side / short)
        # enlarging is the same with and without the filter
        upright = rows > columns
        free_rows, free_columns = rows - size, columns - size
        along_rows = op.Where(upright, op.Constant(value=focus), op.Cast(0.5, to=DOUBLE_))
        along_columns = op.Where(upright, op.Cast(0.5, to=DOUBLE_), op.Constant(value=focus))
        middle_row = op.Cast(op.Ceil(op.Cast(free_rows, to=DOUBLE_) * along_rows), to=INT64_)
        middle_column = op.Cast(op.Ceil(op.Cast(free_columns, to=DOUBLE_) * along_columns), to=INT64_)
        end_row = op.Where(upright, op.Where(crop == 0, crop * 0, free_rows), middle_row)
        end_column = op.Where(upright, middle_column, op.Where(crop == 0, crop * 0, free_columns))
        top = op.Where(crop == 1, middle_row, end_row)
        left = op.Where(crop == 1, middle_column, end_column)
        part = scale_columns(stored, columns, left, size, antialias)
        part = scale_rows(part, rows, top, size, antialias)
        part = op.Reshape(part, op.Concat(shape[0:2], op.Constant(value=tail), axis=0))
        pixels = op.Cast(op.Transpose(part, perm=[0, 2, 1, 3, 4]), to=FLOAT_)
        return pixels * op.Constant(value=scale) + op.Constant(value=shift)

    return graph.to_model_proto(opset_version=OPSET)
