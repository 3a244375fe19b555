"""Prints the largest errors of onnxruntime's GroupNormalization and InstanceNormalization in float32, for normal inputs
with deviation 1 and larger and larger means, in two groups of 1024 numbers (docs/export.md).

    build/peers/bin/python tests/export/group_norm_of_onnxruntime.py

Needs numpy, onnx and onnxruntime: all_models.py installs them there.
"""

import numpy
import onnxruntime
from onnx import TensorProto, helper

IMAGES, CHANNELS, SIZE, GROUPS = 2, 8, 16, 2
EPS = 1e-5


def constant(name, values, kind=TensorProto.FLOAT):
    return helper.make_tensor(name, kind, [len(values)], values)


def group_normalization():
    """The node of opset 21, and its constants."""
    node = helper.make_node("GroupNormalization", ["x", "weight", "bias"], ["y"], num_groups=GROUPS, epsilon=EPS)
    return [node], [constant("weight", [1.0] * CHANNELS), constant("bias", [0.0] * CHANNELS)]


def instance_normalization():
    """The nodes of earlier opsets, and their constants."""
    nodes = [helper.make_node("Reshape", ["x", "grouped"], ["groups"]),
             helper.make_node("InstanceNormalization", ["groups", "weight", "bias"], ["normalized"], epsilon=EPS),
             helper.make_node("Reshape", ["normalized", "sizes"], ["y"])]
    return nodes, [constant("grouped", [0, GROUPS, -1], TensorProto.INT64),
                   constant("sizes", [IMAGES, CHANNELS, SIZE, SIZE], TensorProto.INT64),
                   constant("weight", [1.0] * GROUPS), constant("bias", [0.0] * GROUPS)]


def largest_error(nodes, constants, opset, x):
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "group_norm", [tensor("x", TensorProto.FLOAT, x.shape)],
                              [tensor("y", TensorProto.FLOAT, None)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    groups = x.astype(numpy.float64).reshape(IMAGES, GROUPS, -1)
    deviation = numpy.sqrt(groups.var(-1, keepdims=True) + EPS)
    exact = ((groups - groups.mean(-1, keepdims=True)) / deviation).reshape(x.shape)
    return numpy.abs(y - exact).max()


def main():
    normal = numpy.random.default_rng(0).standard_normal((IMAGES, CHANNELS, SIZE, SIZE))
    print(f"onnxruntime {onnxruntime.__version__}\n  mean  GroupNormalization  InstanceNormalization")
    for mean in (0, 10, 100, 1000):
        x = (normal + mean).astype(numpy.float32)
        print(f"{mean:6}  {largest_error(*group_normalization(), 21, x):18.2g}  "
              f"{largest_error(*instance_normalization(), 18, x):21.2g}")


if __name__ == "__main__":
    main()
