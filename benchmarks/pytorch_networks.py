"""The networks of Norma's comparisons, made from torchvision's classes."""
from functools import partial

import torch
import torchvision
from torchvision.models.convnext import CNBlockConfig, ConvNeXt, LayerNorm2d

NORMS = {
    "batch": torch.nn.BatchNorm2d,
    "group:32": partial(torch.nn.GroupNorm, 32),
    "layer2d": partial(LayerNorm2d, eps=1e-6),
}
CONVNEXT = {  # widths and depths of the four stages
    "convnext_atto": ((40, 80, 160, 320), (2, 2, 6, 2)),
    "convnext_femto": ((48, 96, 192, 384), (2, 2, 6, 2)),
    "convnext_pico": ((64, 128, 256, 512), (2, 2, 6, 2)),
    "convnext_tiny": ((96, 192, 384, 768), (3, 3, 9, 3)),
}


def convnext(name, num_classes, patch_size):
    """timm's ConvNeXt: the same computation as its 1x1-convolution form, eps and layer scale 1e-6, no drop path."""
    widths, depths = CONVNEXT[name]
    stages = [CNBlockConfig(width, following, depth)
              for width, following, depth in zip(widths, (*widths[1:], None), depths)]
    model = ConvNeXt(stages, stochastic_depth_prob=0.0, layer_scale=1e-6, num_classes=num_classes,
                     norm_layer=partial(LayerNorm2d, eps=1e-6))
    stem = torch.nn.Conv2d(3, widths[0], kernel_size=patch_size, stride=patch_size)
    torch.nn.init.trunc_normal_(stem.weight, std=0.02)
    torch.nn.init.zeros_(stem.bias)
    model.features[0][0] = stem
    return model


def create_model(name, norm, num_classes, patch_size):
    if name in CONVNEXT:
        if norm not in ("", "layer2d"):
            raise SystemExit(f"pytorch: {name} is here with layer2d only, got {norm}")
        return convnext(name, num_classes, patch_size)
    return getattr(torchvision.models, name)(num_classes=num_classes, norm_layer=NORMS[norm or "batch"])


def parameter_groups(model, weight_decay):
    """Norms, biases and layer scales do not decay; all that is not a weight matrix or a kernel."""
    vectors = [p for n, p in model.named_parameters() if p.dim() <= 1 or n.endswith("layer_scale")]
    chosen = {id(p) for p in vectors}
    matrices = [p for p in model.parameters() if id(p) not in chosen]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
