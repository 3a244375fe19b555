"""The GIL, references, and signals."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

import norma
from norma import nn


def test_other_threads_run_while_norma_computes() -> None:
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    x = norma.randn([8, 32, 64, 64])
    weight = norma.randn([32, 32, 3, 3])
    thread.start()
    for _ in range(20):
        norma.conv2d(x, weight, padding=1)
    stop.set()
    thread.join()
    assert counted > 3


def test_threads_have_their_own_grad_mode_and_results() -> None:
    results: list[bool] = []

    def work() -> None:
        x = norma.randn([4, 8, 5, 5], requires_grad=True)
        for _ in range(50):
            norma.group_norm(x, 2).sum().backward()
        results.append((x * 2).requires_grad)

    with norma.no_grad():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 4


def test_nothing_is_kept_by_tapes_and_modules() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(norma.ones([3]))

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return x * self.weight

    module = Holder()
    network = nn.Sequential(module)
    gone = weakref.ref(module)
    y = network(norma.ones([2, 3]))
    before = sys.getrefcount(module)
    for _ in range(100):
        network(norma.ones([2, 3]))
    assert sys.getrefcount(module) == before
    del module
    gc.collect()
    assert gone() is not None  # the network has it
    y.sum().backward()
    del network, y
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 77), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_a_comparison_with_its_work_saved(tmp_path: Path, number: int, code: int) -> None:
    script = (
        "import norma, sys\n"
        "try:\n"
        f"    norma.compare({str(tmp_path / 'c')!r}, models=['resnet18'], norms=['batch'], dataset='shapes',\n"
        "                  img_size=16, batch_size=8, images=100000, test_images=16, workers=0, timing_rounds=0,\n"
    "                  log_interval=1)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(77)\n")
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "report grows" in line:
            break
    for line in process.stdout:  # the first step
        if "loss" in line or "[1/1]" in line:
            process.send_signal(number)
            break
    process.stdout.read()
    assert process.wait() == code
    assert (tmp_path / "c" / "results.json").exists()


def test_ctrl_c_ends_check_norm_before_the_next_check() -> None:
    script = (
        "import norma, os, signal, sys\n"
        "calls = 0\n"
        "interrupts = False\n"
        "@norma.register_norm('mine')\n"
        "class Norm(norma.nn.Module):\n"
        "    def __init__(self, channels):\n"
        "        super().__init__()\n"
        "    def forward(self, x):\n"
        "        global calls, interrupts\n"
        "        calls += 1\n"
        "        if interrupts:\n"
        "            interrupts = False\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "        return x\n"
        "norma.check_norm('mine', quick=True)\n"
        "of_all, calls, interrupts = calls, 0, True\n"
        "try:\n"
        "    norma.check_norm('mine', quick=True)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(77 if calls < of_all / 4 else f'{calls} of {of_all} calls')\n")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 77, ended.stderr
    assert "interrupted: ending soon, without a result" in ended.stderr


def test_options_of_a_command_hold_for_it_alone() -> None:
    before = norma.num_threads()
    other = 1 if before > 1 else 2
    assert norma.run("check-norm", norm="dyt", quick=True, quiet=True, threads=other) == 0
    assert norma.num_threads() == before
    with pytest.raises(norma.Error):
        norma.run("check-norm", norm="bath", threads=other)
    assert norma.num_threads() == before
    device = norma.default_device()
    with pytest.raises(norma.Error, match="bath"):
        norma.run("check-norm", norm="bath", device="cuda-emulated" if device == "cpu" else "cpu")
    assert norma.default_device() == device


def test_exact_convolutions_of_a_command_are_not_those_of_what_follows() -> None:
    script = (
        "import norma\n"
        "norma.manual_seed(3)\n"
        "x = norma.randn([4, 64, 28, 28])\n"
        "weight = norma.randn([64, 64, 3, 3])\n"
        "def first():\n"
        "    return norma.conv2d(x, weight, padding=1).flatten().tolist()[:64]\n"
        "before = first()\n"
        "assert norma.run('bench', model='resnet18', img_size=32, batch_size=1, bench='infer', num_warm_iter=0,\n"
        "                 num_bench_iter=1, conv='exact', quiet=True) == 0\n"
        "assert first() == before\n"
        "print(before)\n")
    printed = []
    for way in ("fast", "exact"):
        ended = subprocess.run([sys.executable, "-c", script], env=os.environ | {"NORMA_CONV": way},
                               capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        printed.append(ended.stdout.splitlines()[-1])
    assert printed[0] != printed[1]


@pytest.mark.parametrize("wrong", [{"NORMA_DEVICE": "none"}, {"NORMA_CONV": "none"}, {"OMP_NUM_THREADS": "2000"}])
def test_a_command_that_needs_no_part_of_the_environment_does_not_look_at_it(wrong: dict[str, str]) -> None:
    script = "import norma, sys; sys.exit(norma.run('check-norm', norm='dyt', quick=True, device='cpu', threads=1))"
    ended = subprocess.run([sys.executable, "-c", script], env=os.environ | wrong, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is full")
def test_the_program_says_that_its_output_cannot_be_written() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run([sys.executable, "-m", "norma", "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "norma: cannot write to the standard output: No space left on device\n"


def test_subnormal_numbers_are_kept_unless_asked_and_after_commands() -> None:
    small = norma.full([1], 1e-20)

    def product() -> float:
        return (small * small).item()

    assert product() > 0
    if norma.set_flush_denormal(True):
        assert product() == 0
    assert norma.set_flush_denormal(False)
    assert norma.run("bench", model="resnet18", img_size=32, batch_size=2, bench="train", num_warm_iter=0,
                     num_bench_iter=1, quiet=True) == 0
    assert product() > 0
