"""Layers, networks and optimizers."""

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import norma
from norma import nn, optim


class Small(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.make_norm("group:2", channels)
        self.head = nn.Linear(channels, 4)
        self.scale = nn.Parameter(norma.ones([1]))
        self.seen = nn.Buffer(norma.zeros([1]))

    def forward(self, x: norma.Tensor) -> norma.Tensor:
        if self.training:
            self.seen.add_(1)
        y = norma.relu(self.norm(self.conv(x))).mean([2, 3])
        return self.head(y) * self.scale


def test_a_module_of_python_has_the_state_of_its_attributes() -> None:
    net = Small(8)
    assert list(net.state_dict()) == ["scale", "seen", "conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                      "head.weight", "head.bias"]
    assert net.parameter_count() == 1 + 8 * 27 + 8 + 16 + 32 + 4
    assert "Small()" in repr(net) and "Conv2d(3, 8" in repr(net)
    assert [path for path, _ in net.named_modules()] == ["", "conv", "norm", "head"]
    net.eval()
    net(norma.randn([2, 3, 5, 5]))
    assert net.seen.item() == 0 and not net.conv.training


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, 0.05, momentum=0.9), lambda p: optim.AdamW(p, 0.02)])
def test_training_lowers_the_loss(make) -> None:  # type: ignore[no-untyped-def]
    norma.manual_seed(0)
    net = Small(8)
    optimizer = make(net)
    x = norma.randn([16, 3, 6, 6])
    target = norma.randint(0, 4, [16])
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = norma.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0] and optimizer.steps == 30


def test_a_parameter_is_a_tensor_for_optimizers_and_in_formulas() -> None:
    weight = nn.Parameter(norma.ones([4, 4]))
    frozen = nn.Parameter(norma.ones([4]), requires_grad=False)
    assert weight.requires_grad and weight.is_leaf and not frozen.requires_grad
    optimizer = optim.Muon([weight], lr=0.1)
    (weight * weight).sum().backward()
    optimizer.step()
    assert weight.abs().sum().item() < 16


def test_schedules_of_pytorch() -> None:
    optimizer = optim.SGD([nn.Parameter(norma.ones([2]))], 0.4)
    cosine = optim.CosineAnnealingLR(optimizer, T_max=4, eta_min=0.1)
    rates = [optimizer.lr]
    for _ in range(4):
        cosine.step()
        rates += cosine.get_last_lr()
    assert np.allclose(rates, 0.1 + 0.3 * (1 + np.cos(np.pi * np.arange(5) / 4)) / 2)
    cycle = optim.OneCycleLR(optimizer, max_lr=1, total_steps=11)
    rates = [optimizer.lr]
    for _ in range(10):
        cycle.step()
        rates.append(optimizer.lr)
    # torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD([torch.ones(2)], 1), 1, total_steps=11).get_last_lr(), …
    assert np.allclose(rates[:3] + rates[-1:], [0.04, 0.42234111, 0.96026122, 4e-6], atol=1e-7)
    assert optim.LambdaLR(optimizer, lambda step: 0.5 ** step).base_lr == optimizer.lr


def test_networks_of_the_catalogue_take_any_norm() -> None:
    assert "resnet18" in norma.models.model_names()
    net = norma.models.create_model("resnet18", num_classes=5, norm="layer2d", seed=1)
    assert net(norma.randn([2, 3, 32, 32])).shape == (2, 5)
    vit = norma.models.create_model("vit_tiny", num_classes=5, image_size=16, patch_size=8, qk_norm="rms2d", global_pool="avg")
    assert vit(norma.randn([2, 3, 16, 16])).shape == (2, 5)
    assert "blocks.11.attn.q_norm.weight" in vit.state_dict() and "fc_norm.weight" in vit.state_dict()
    bare = norma.models.create_model("vit_tiny", num_classes=5, image_size=16, patch_size=8, qkv_bias=False, pos_drop=0.5)
    assert "blocks.0.attn.qkv.bias" not in bare.state_dict()
    x = norma.randn([2, 3, 16, 16])
    assert not np.array_equal(bare(x).numpy(), bare(x).numpy()), "dropout of positions changes nothing"
    with pytest.raises(norma.Error, match="did you mean|resnet"):
        norma.models.create_model("resnet17")
    with pytest.raises(norma.Error, match="layr2d"):
        norma.models.create_model("resnet18", norm="layr2d")


def test_state_travels_through_a_file(tmp_path: Path) -> None:
    a, b = Small(4), Small(4)
    norma.save_file(a.state_dict(), str(tmp_path / "w.safetensors"))
    loaded = norma.load_file(str(tmp_path / "w.safetensors"))
    assert b.load_state_dict(loaded) == ([], [])
    x = norma.randn([1, 3, 4, 4])
    assert np.array_equal(a(x).numpy(), b(x).numpy())
    del loaded["scale"]
    with pytest.raises(norma.Error, match="scale"):
        b.load_state_dict(loaded)
    assert b.load_state_dict(loaded, strict=False) == (["scale"], [])
    with pytest.raises(norma.Error, match="cannot open .*\ufffd.safetensors: "):  # a name that is not UTF-8
        norma.load_file(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.safetensors"))


def test_hooks_see_inputs_and_outputs() -> None:
    net = Small(4)
    shapes = []
    number = net.conv.register_forward_hook(lambda module, x, y: shapes.append((repr(module)[:6], x.shape, y.shape)))
    net(norma.randn([1, 3, 4, 4]))
    net.conv.remove_forward_hook(number)
    net(norma.randn([1, 3, 4, 4]))
    assert shapes == [("Conv2d", (1, 3, 4, 4), (1, 4, 4, 4))]


def test_dtypes_and_formats_of_a_network() -> None:
    net = Small(4).to(norma.float64).to(memory_format="channels_last")
    assert net.conv.weight.dtype == norma.float64 and net.conv.weight.memory_format == "channels_last"
    assert net(norma.randn([1, 3, 4, 4], dtype=norma.float64)).dtype == norma.float64


def test_attributes_stay_what_is_registered() -> None:
    net = Small(4)
    assert isinstance(net.conv, nn.Module)
    with pytest.raises(norma.Error, match="Small: seen: expected it to stay what the module has registered"):
        net.seen = net.seen + 1
    with norma.no_grad():
        net.scale.copy_(norma.tensor([3.0]))
    assert net.state_dict()["scale"].item() == 3


def test_a_module_does_not_hold_itself() -> None:
    class Child(nn.Module):
        def __init__(self, parent: nn.Module | None) -> None:
            super().__init__()
            self.parent = parent

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.child = Child(self)

    with pytest.raises(norma.Error, match="expected one that does not hold its parent, .* under the name 'child'"):
        Parent()
    child = Child(None)
    with pytest.raises(norma.Error, match="expected one that does not hold its parent"):
        child.parent = child
    assert [name for name, _ in child.named_modules()] == [""]


def test_forward_of_python_is_called_or_refused() -> None:
    with pytest.raises(norma.Error, match="Mine: forward: expected a class derived from Module itself .* from ReLU"):
        class Mine(nn.ReLU):
            def forward(self, x: norma.Tensor) -> norma.Tensor:
                return x

    class Stem(nn.Sequential):  # without a forward() of its own
        def __init__(self) -> None:
            super().__init__(nn.Conv2d(3, 4, 1), nn.ReLU())

    class Base(nn.Module):
        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return super().forward(x)

    class Derived(Base):
        def forward(self, x: norma.Tensor) -> norma.Tensor:
            return x * 2

    assert Stem()(norma.ones([1, 3, 2, 2])).shape == (1, 4, 2, 2)
    assert Derived()(norma.ones([1])).item() == 2
    with pytest.raises(norma.Error, match=r"Base: expected a method forward\(self, x\), got none, or one that calls"):
        Base()(norma.ones([1]))


def test_modules_are_copied_by_their_state_dict() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(norma.randn([2]))

    class Own(Scale):
        def __deepcopy__(self, memo: object) -> "Own":
            other = Own()
            other.load_state_dict(self.state_dict())
            return other

    for module in (nn.Conv2d(2, 3, 1), nn.Sequential(nn.ReLU()), Scale()):
        for function in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(norma.Error, match=rf"{type(module).__name__}: .*state_dict\(\).*load_state_dict\(\)"):
                function(module)
    own = Own()
    other = copy.deepcopy(own)
    assert other is not own and other.weight.tolist() == own.weight.tolist()
    state = copy.deepcopy(own.state_dict())
    assert pickle.loads(pickle.dumps(state))["weight"].tolist() == own.weight.tolist()
