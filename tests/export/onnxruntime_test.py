"""Compares the ONNX files of test_export with onnxruntime, and has ONNX's own checker read them.

    ./run build --rooms export && python3 tests/export/onnxruntime_test.py

Installs onnx and onnxruntime from PyPI into BUILD/onnxruntime once; ctest takes them from there, or from its own Python,
and skips this test (exit code 77) where neither has them. An error may be four times that of Norma, both against
float64: other libraries add up in another order.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ["onnx==1.23.2", "onnxruntime==1.32.0", "numpy"]
EPS = 2.0**-20
SKIPPED = 77


def python_with_onnxruntime(folder, install):
    """A Python that has onnx and onnxruntime: that of the environment `folder`, or the one that runs this. Or None."""
    own = folder / "bin" / "python"
    for python in (own, pathlib.Path(sys.executable)):
        imports = [python, "-c", "import numpy, onnx, onnxruntime"]
        if python.exists() and subprocess.run(imports, capture_output=True).returncode == 0:
            return python
    if not install:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    subprocess.run([own, "-m", "pip", "install", "--quiet", *VERSIONS], check=True)
    return own


def rms(numpy, values):
    return float(numpy.sqrt(numpy.mean(numpy.square(values))))


def compare(build):
    import numpy
    import onnx
    import onnxruntime

    files = build / "onnxruntime_test"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    subprocess.run(
        [build / "tests" / "test_export", "--test-case=*for onnxruntime"],
        env={**os.environ, "NORMA_ONNX_FILES": str(files)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    cases = json.loads((files / "list.json").read_text())
    failed = 0
    for case in cases:
        file = files / case["file"]
        onnx.checker.check_model(str(file), full_check=True)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        x = numpy.array(case["input"], numpy.float32).reshape(case["sizes"])
        expected = numpy.array(case["expected"])
        (y,) = session.run(None, {"input": x})
        size = rms(numpy, expected)
        error = rms(numpy, y.ravel() - expected) / size
        own = rms(numpy, numpy.array(case["own"]) - expected) / size
        (one,) = session.run(None, {"input": x[:1]})  # another number of images
        alone = rms(numpy, one.ravel() - expected[: one.size]) / size
        limit = 4 * own + EPS
        if not max(error, alone) <= limit:  # NaN fails
            failed += 1
            print(f"{case['name']}: expected an error of at most {limit:.2g}, got {error:.2g} and {alone:.2g}")
    print(f"{len(cases)} files, {failed} failed; onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")
    return 1 if failed or not cases else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cpu-release")
    parser.add_argument("--no-install", action="store_true", help="skip the test where onnxruntime is missing")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # started again, with onnxruntime
    options = parser.parse_args()
    build = options.build.resolve()
    if options.inside:
        return compare(build)
    python = python_with_onnxruntime(build / "onnxruntime", not options.no_install)
    if python is None:
        print("skipped: no onnx and onnxruntime for Python; python3 tests/export/onnxruntime_test.py installs them")
        return SKIPPED
    return subprocess.run([python, "-B", __file__, "--build", build, "--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
