"""Runs FOLDER/model.onnx on FOLDER/input: python -c THIS FOLDER DTYPE SIZES."""

import sys
sys.path = [path for path in sys.path if path]  # without the folder where somebody happens to be
try:
    import numpy, onnxruntime
except ImportError:
    sys.exit(3)
folder, dtype, sizes = sys.argv[1:]
x = numpy.fromfile(folder + "/input", dtype).reshape([int(size) for size in sizes.split(",")])
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
try:
    session = onnxruntime.InferenceSession(folder + "/model.onnx", options, providers=["CPUExecutionProvider"])
    y, = session.run(None, {session.get_inputs()[0].name: x})
except Exception as error:
    sys.exit(" ".join(str(error).split()))
numpy.ascontiguousarray(y).tofile(folder + "/output")
print("onnxruntime", onnxruntime.__version__)
