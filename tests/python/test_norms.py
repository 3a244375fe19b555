"""Norms written in Python: in networks, in check_norm() and in comparisons."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import norma
from norma import nn, optim


@norma.register_norm("my_derf")
class Derf(nn.Module):
    """erf(alpha x) * weight + bias."""

    def __init__(self, channels: int, alpha: float = 0.5) -> None:
        super().__init__()
        self.alpha = nn.Parameter(norma.full([1], alpha))
        self.weight = nn.Parameter(norma.ones([channels, 1, 1]))
        self.bias = nn.Parameter(norma.zeros([channels, 1, 1]))

    def forward(self, x: norma.Tensor) -> norma.Tensor:
        return norma.erf(x * self.alpha) * self.weight + self.bias


def test_it_stands_in_every_network() -> None:
    assert "my_derf" in norma.norm_names()
    net = norma.models.create_model("resnet18", num_classes=3, norm="my_derf[alpha=0.7]")
    names = [name for name, _ in net.named_parameters()]
    assert "bn1.alpha" in names and "layer1.0.bn1.weight" in names
    assert abs(dict(net.named_parameters())["bn1.alpha"].item() - 0.7) < 1e-6
    x = norma.randn([2, 3, 32, 32], requires_grad=True)
    net(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_check_norm_finds_it_right() -> None:
    report = norma.check_norm("my_derf", quick=True, like="derf")
    assert report, report
    assert norma.check_norm("my_derf", quick=True, like="group").failures[0][0] == "like group"


def test_check_norm_finds_a_wrong_one() -> None:
    @norma.register_norm("detached")
    class Detached(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(norma.ones([channels]))

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return x.detach() * self.weight.to(x.dtype).reshape([-1, 1, 1])

    report = norma.check_norm("detached", quick=True)
    assert not report.passed and any("gradient" in name for name, _ in report.failures)


def test_a_norm_says_which_of_its_parameters_decay() -> None:
    class Decays(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(norma.ones([channels, 1, 1]))

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return x * self.weight

        def decaying(self) -> list[str]:
            return ["weight"]

    norma.register_norm("decays")(Decays)
    for norm, weight in [("decays", 0.95), ("layer2d", 1.0)]:
        net = norma.models.create_model("resnet18", num_classes=2, norm=norm)
        (net(norma.randn([2, 3, 32, 32])).sum() * 0).backward()
        optim.SGD(net, lr=0.1, weight_decay=0.5).step()
        assert abs(dict(net.named_parameters())["bn1.weight"].numpy() - weight).max() < 1e-6


def test_mistakes_are_said_where_they_are_made() -> None:
    @norma.register_norm("shorter")
    class Shorter(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return x[:1]

    net = norma.models.create_model("resnet18", norm="shorter")
    with pytest.raises(norma.Error, match=r"shorter: forward: expected a tensor of sizes \[2, 64, 16, 16\], as the "
                                          r"input's, got sizes \[1, 64, 16, 16\]"):
        net(norma.randn([2, 3, 32, 32]))
    with pytest.raises(norma.Error, match="expected a class derived from norma.nn.Module"):
        norma.register_norm("no")(int)  # type: ignore[type-var]
    with pytest.raises(norma.Error, match="register_norm: name: expected one that is not built in, got 'derf'"):
        norma.register_norm("derf")(Shorter)

    @norma.register_norm("raises")
    class Raises(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        norma.models.create_model("resnet18", norm="raises")(norma.randn([2, 3, 32, 32]))


def test_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"models": ["resnet18"], "norms": ["batch", "my_derf"], "dataset": "shapes", "img_size": 16,
               "batch_size": 8, "images": 32, "test_images": 16, "workers": 0, "timing_rounds": 0}
    comparison = norma.compare(tmp_path / "c", **options)
    cells = comparison.results["cells"]
    assert [cell["state"] for cell in cells] == ["finished", "finished"]
    assert "my_derf" in comparison.report() and "<iframe" in comparison._repr_html_()
    assert "the report grows in" in capsys.readouterr().out
    assert json.loads((tmp_path / "c" / "results.json").read_text())
    again = norma.compare(tmp_path / "c", quiet=True, **options)  # all is done
    assert again.results["cells"] == cells and capsys.readouterr() == ("", "")
    assert f"norma.compare(output='{tmp_path / 'c'}', models=['resnet18']" in comparison.results["command"]
    with pytest.raises(norma.Error, match="compare: unknown option '--modles'; did you mean '--models'?"):
        norma.compare(tmp_path / "d", modles=["resnet18"])
    with pytest.raises(norma.Error, match=r"compare: --lr: expected a number in \(0, 1000\], got fast"):
        norma.compare(tmp_path / "d", lr=[0.1, "fast"])
    with pytest.raises(norma.Error, match="compare: --quiet: expected true or false, got 3"):
        norma.compare(tmp_path / "d", quiet=3)
    with pytest.raises(norma.Error, match="compare: --threads: expected a whole number from 0 to 1024, got -1"):
        norma.compare(tmp_path / "d", threads=-1)
    with pytest.raises(norma.Error, match="compare: --epochs excludes --images"):
        norma.compare(tmp_path / "d", epochs=1, images=8)
    with pytest.raises(norma.Error, match="norms: expected each once, got batch twice"):
        norma.compare(tmp_path / "d", norms="batch,group:8,batch", quick=False, flip=False, study=None)
    assert not (tmp_path / "d").exists()


def test_a_norm_may_hold_other_layers_and_have_typed_options() -> None:
    seen: list[object] = []

    @norma.register_norm("held")
    class Held(nn.Module):
        def __init__(self, channels: int, groups: int = 2, flag: bool = True) -> None:
            super().__init__()
            seen[:] = [groups, flag]
            self.inner = nn.GroupNorm(groups, channels)
            self.gain = nn.Parameter(norma.ones([1]))

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return self.inner(x) * self.gain

    layer = nn.make_norm("held[groups=4,flag=False]", 8)
    assert seen == [4, False]
    assert list(layer.state_dict()) == ["gain", "inner.weight", "inner.bias"]
    with pytest.raises(norma.Error, match="held: groups: expected a int, got 'x'"):
        nn.make_norm("held[groups=x]", 8)
    with pytest.raises(norma.Error, match="expected a default for each option, got none for width"):
        @norma.register_norm("needs")
        class Needs(nn.Module):
            def __init__(self, channels: int, width: int) -> None:
                super().__init__()


def test_commands_one_after_the_other_and_what_a_norm_raises_in_them(tmp_path: Path) -> None:
    calls = 0

    @norma.register_norm("late")
    class Late(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            nonlocal calls
            calls += 1
            if calls > 100:
                raise ValueError("too late\nand more")
            return x

    options = {"dataset": "shapes", "img_size": 16, "batch_size": 8, "images": 64, "test_images": 16, "workers": 0}
    for i in range(4):
        assert norma.run("train", model="resnet18", output=tmp_path / f"t{i}", quiet=True, **options) == 0
    comparison = norma.compare(tmp_path / "c", models=["resnet18"], norms=["late", "batch"], timing_rounds=0,
                               telemetry=False, quiet=True, **options)
    failed, finished = comparison.results["cells"]
    assert (failed["state"], finished["state"]) == ("failed", "finished")
    assert failed["reason"] == "late: ValueError: too late"
    with pytest.raises(norma.Error, match="procs: expected the norma command"):
        norma.run("train", model="resnet18", procs=2)
    with pytest.raises(norma.Error, match=r"--batch-sizes: expected .*, got xé+…$"):  # cut between two characters
        norma.compare(tmp_path / "d", batch_sizes="x" + 60 * "é")
    with pytest.raises(norma.Error, match="no_such_a.so") as error:
        norma.run("train", model="resnet18", plugin=["no_such_a.so", "no_such_b.so"])
    assert "no_such_b" not in str(error.value)  # it is the next file


def test_dynamics_of_what_a_norm_says_and_the_line_that_repeats_it(tmp_path: Path) -> None:
    answer: object = "scale"

    @norma.register_norm("says")
    class Says(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()

        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return norma.rms_norm_2d(x)

        def invariance(self) -> object:
            return answer

        def bend(self) -> tuple[float, float, float]:
            return 1, 0, 1e-3

    options = {"dataset": "shapes", "img_size": 16, "batch_size": 8, "images": 16, "test_images": 16, "workers": 0}
    comparison = norma.compare(tmp_path / "c", models=["resnet18"], norms=["says"], timing_rounds=0, quiet=True,
                               dynamics="weights,saturation", **options)
    layers = comparison.results["cells"][0]["telemetry"]["health"][0]["dynamics"]["layers"]
    assert layers["effective_lr"][layers["layer"].index("conv1")] > 0
    assert layers["saturation"][layers["layer"].index("bn1")] > 0
    assert 'norma.run("train","--model","resnet18","--norm","says",' in comparison.report()
    answer = "all"
    assert norma.run("train", model="resnet18", norm="says", output=tmp_path / "t", quiet=True, **options) == 0
    with pytest.raises(norma.Error, match="says: invariance: expected none, scale or scale_and_shift, got 'all'"):
        norma.run("train", model="resnet18", norm="says", output=tmp_path / "u", quiet=True, dynamics="weights",
                  **options)
    command = [sys.executable, "-m", "norma", "eval", "--checkpoint", str(tmp_path / "t")]
    text = subprocess.run(command, capture_output=True, text=True).stderr
    assert text == (
        "norma: eval: norm 'says' is none of Norma's, and of no plug-in of the run: a program has registered it. "
        f'In Python, where it is registered: norma.run("eval", checkpoint="{tmp_path / "t"}")\n')


def test_what_forward_returns_is_named() -> None:
    class Wrong(nn.Module):
        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return None  # type: ignore[return-value]

    with pytest.raises(norma.Error, match="Wrong: forward: expected a Tensor, got NoneType"):
        Wrong()(norma.ones([1]))

    class Empty(nn.Module):
        pass

    with pytest.raises(norma.Error, match=r"Empty: expected a method forward\(self, x\), got none"):
        Empty()(norma.ones([1]))
