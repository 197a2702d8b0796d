"""Models whose weights have no data: refused by default, loaded for their shapes on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuc.frontend import ModelRefused, check_model, load
from tests.support.graphs import parsed

BODY = "m (float[2, 3] x) => (float[2, 4] y) { y = MatMul (x, w) }"


def model(folder: Path, kind: int = onnx.TensorProto.FLOAT, location: str = "data", raw: bytes | None = None) -> Path:
    """MatMul with a weight w [3, 4] in a file that is not there; or in the model, with `raw` as its bytes."""
    proto = parsed(BODY)
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=[3, 4])
    if raw is None:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", "48")):
            tensor.external_data.add(key=key, value=value)
    elif raw:
        tensor.raw_data = raw
    proto.graph.initializer.append(tensor)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_missing_file_is_an_error_where_values_matter(tmp_path: Path):
    with pytest.raises(ModelRefused, match=r"^model\.onnx: external data file 'data' is missing$"):
        load(model(tmp_path))


@pytest.mark.parametrize("raw", [None, b""], ids=["file", "bytes"])
def test_shapes_are_enough_on_request(raw: bytes | None, tmp_path: Path):
    loaded = load(model(tmp_path, raw=raw), values=False)
    check_model(loaded)
    assert loaded.absent == {"w"}
    tensor = loaded.model.graph.initializers["w"].const_value
    assert tensor is not None and tensor.shape.numpy() == (3, 4)
    values = tensor.numpy()
    assert values.dtype == np.float32 and (values >= 0.75).all() and (values < 1.25).all()
    assert len(np.unique(values)) == 12


def test_bytes_that_are_there_are_still_checked(tmp_path: Path):
    with pytest.raises(ModelRefused, match=r"weight w: shape \[3, 4\] of float does not fit its 4 bytes"):
        load(model(tmp_path, raw=b"abcd"), values=False)
    path = model(tmp_path)
    (tmp_path / "data").write_bytes(bytes(40))
    with pytest.raises(
        ModelRefused, match="external data file 'data' ends at 40 bytes, before the data of a weight do"
    ):
        load(path, values=False)
    (tmp_path / "data").write_bytes(bytes(48))
    loaded = load(path, values=False)
    assert not loaded.absent
    assert not loaded.model.graph.initializers["w"].const_value.numpy().any()  # type: ignore[union-attr]


@pytest.mark.parametrize("location", ["../data", "/etc/passwd"])
def test_a_path_out_of_the_folder_is_an_error_in_either_case(location: str, tmp_path: Path):
    with pytest.raises(ModelRefused, match="leaves the model's folder"):
        load(model(tmp_path, location=location), values=False)


def test_whole_numbers_have_to_be_there(tmp_path: Path):
    with pytest.raises(ModelRefused) as caught:
        load(model(tmp_path, onnx.TensorProto.INT32), values=False)
    assert str(caught.value) == ("model.onnx: weight w: its int32 values are missing, and they say how the graph works")


def test_codes_are_never_made_up(tmp_path: Path):
    loaded = load(model(tmp_path, onnx.TensorProto.UINT8, raw=b""), values=False)
    with pytest.raises(ModelRefused, match=r"^codes of a weight of shape \[3, 4\] are read, and its data are missing$"):
        loaded.model.graph.initializers["w"].const_value.numpy()  # type: ignore[union-attr]
