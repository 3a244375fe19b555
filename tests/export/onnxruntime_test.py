"""Compares the ONNX files of test_export with onnxruntime, and has ONNX's own checker read them.

usage: onnxruntime_test.py TEST_PROGRAM WORK_FOLDER

Installs onnx and onnxruntime from PyPI into WORK_FOLDER/venv where they are missing. An error may be four times that of
Norma, both against float64: other libraries add up in another order.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv

VERSIONS = ["onnx==1.23.2", "onnxruntime==1.32.0", "numpy"]
EPS = 2.0**-20


def in_environment(work):
    """Starts this script again in an environment that has onnx and onnxruntime."""
    folder = work / "venv"
    python = folder / "bin" / "python"
    stamp = folder / "versions"
    if not stamp.exists() or stamp.read_text() != " ".join(VERSIONS):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *VERSIONS], check=True)
        stamp.write_text(" ".join(VERSIONS))
    return subprocess.run([python, "-B", *sys.argv, "--inside"]).returncode


def rms(numpy, values):
    return float(numpy.sqrt(numpy.mean(numpy.square(values))))


def main(program, work):
    import numpy
    import onnx
    import onnxruntime

    files = work / "files"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    subprocess.run(
        [program, "--test-case=*for onnxruntime"],
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


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--inside"]
    work_folder = pathlib.Path(arguments[1]).resolve()
    sys.exit(main(arguments[0], work_folder) if "--inside" in sys.argv else in_environment(work_folder))
