#!/usr/bin/env python3
"""Fine-tunes with a frozen stem in Norma and in PyTorch, from the same file and on the same batches, and compares.

timm and torchvision make networks with random weights, and this writes each as .safetensors and .pth with a head of
other classes. `norma train --initial-checkpoint FILE --freeze STEM` makes 20 steps of SGD with momentum and decay on
drawn images; PyTorch makes the same steps. Prints, for each network, precision and memory format, the largest
difference of a trained tensor (weights and running statistics) as a share of the tensor's largest element, the tensor,
and the largest difference of a loss. Beside the figures stands the difference of PyTorch in that precision from its own
float64: a ReLU near 0 falls to either side of its kink, and steps of training enlarge that. The frozen tensors must be
the file's, bit by bit. "steps" is how far the weight that moved least went, in the same measure. Fails above 1e-10 in
float64, and in float32 above 1e-5 and 4 times PyTorch's own difference.

Trainings of ViTs without frozen tensors follow, with timm's optimizers and timm's rule for which tensors decay. For
these it prints the first and the last loss, and the largest difference of a loss as a share of timm's, which has the
same limits, but 1e-9 in float64. Muon of both is computed in the dtype of the training; timm's own is in bfloat16.

Needs torch, torchvision, timm and safetensors in the Python that runs it. Set OMP_NUM_THREADS=1 on a busy machine.

    ./run build && build/peers/bin/python tests/parity/finetune.py      # peers.py makes that environment
    python tests/parity/finetune.py --only convnext_atto --steps 5
    python tests/parity/finetune.py --only trainings
"""
import argparse
import functools
import itertools
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import timm
    import timm.optim
    import torch
    import torchvision
    from PIL import Image
    from safetensors.torch import load_file, save_file
except ImportError as error:
    sys.exit(f"finetune: {error}; needs torch, torchvision, timm and safetensors: run it with build/peers/bin/python, "
             "which benchmarks/peers.py makes")

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES, FILE_CLASSES, BATCH, SIZE = 5, 10, 8, 64
LR, MOMENTUM, DECAY = 1e-4, 0.9, 1e-3
STEMS = {"resnet": ["conv1", "bn1"], "convnext": ["stem"], "vit": ["patch_embed"]}
CASES = [("timm", "resnet18", ""), ("timm", "resnet50", ""), ("timm", "convnext_atto", ""), ("torchvision", "resnet50", "")]
CASES += [("timm", "vit_tiny_patch16_224", ""), ("timm", "vit_tiny_patch16_224", "avg"),
          ("timm", "vit_tiny_patch16_224", "qk_norm"), ("timm", "vit_tiny_patch16_224", "scale"),
          ("timm", "vit_small_patch16_224", "avg qk_norm scale")]
SGD = ["--opt", "sgd", "--momentum", MOMENTUM, "--weight-decay", DECAY]


def on_tokens(norm, *arguments, eps=1e-6):
    """PyTorch's norm of (N, C, L) for a ViT's tokens (N, L, C)."""
    class OnTokens(norm):
        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)
    return lambda channels, **_: OnTokens(*arguments, channels, eps=eps)


# Words of a case: timm's arguments, and Norma's.
OPTIONS = {"avg": ({"global_pool": "avg"}, ["--global-pool", "avg"]),
           "qk_norm": ({"qk_norm": True}, ["--qk-norm", "layer2d"]),
           "scale": ({"init_values": 0.1}, ["--layer-scale", 0.1]),
           "no_bias": ({"qkv_bias": False}, ["--no-qkv-bias"]),
           "rms2d": ({"norm_layer": "rmsnorm"}, ["--norm", "rms2d"]),
           "qk_rms2d": ({"norm_layer": "rmsnorm", "qk_norm": True}, ["--norm", "rms2d", "--qk-norm", "rms2d"]),
           "simple2d": ({"norm_layer": "simplenorm"}, ["--norm", "simple2d"]),
           "batch": ({"norm_layer": on_tokens(torch.nn.BatchNorm1d)}, ["--norm", "batch"]),
           "group:4": ({"norm_layer": on_tokens(torch.nn.GroupNorm, 4)}, ["--norm", "group:4"]),
           "patch_norm": ({"embed_norm_layer": "layernorm"}, ["--norm-policy", "patch_norm.toml"])}
OPTIMIZATION = {"smoothing": ["--smoothing", 0.1], "layer_decay": ["--layer-decay", 0.7], "clip": ["--clip-grad", 0.5]}
# Model, optimizer, rate, words of OPTIONS and of OPTIMIZATION.
TRAININGS = [("vit_tiny", "sgd", 0.01, "", ""), ("vit_tiny", "sgd", 0.01, "avg scale", ""),
             ("vit_tiny", "sgd", 0.01, "batch", ""), ("vit_tiny", "nesterov", 0.01, "group:4", ""),
             ("vit_small", "nesterov", 0.01, "qk_norm", "smoothing"), ("vit_tiny", "adamw", 1e-3, "", ""),
             ("vit_tiny", "adamw", 1e-3, "avg", "layer_decay"), ("vit_small", "adamw", 5e-4, "qk_norm scale", "clip"),
             ("vit_tiny", "adamw", 1e-3, "rms2d", ""), ("vit_tiny", "adamw", 1e-3, "avg qk_rms2d", ""),
             ("vit_tiny", "adamw", 1e-3, "batch scale", ""), ("vit_tiny", "adamw", 1e-3, "simple2d", ""),
             ("vit_tiny", "adamw", 1e-3, "no_bias patch_norm", "smoothing"),
             ("vit_small", "adamw", 5e-4, "group:4", "layer_decay"), ("vit_tiny", "lamb", 5e-3, "", ""),
             ("vit_small", "lamb", 5e-3, "avg qk_norm", ""), ("vit_tiny", "rmsproptf", 1e-4, "scale", ""),
             ("vit_tiny", "rmsproptf", 1e-4, "avg rms2d", "clip"), ("vit_tiny", "muon", 1e-3, "", ""),
             ("vit_tiny", "muon", 1e-3, "qk_rms2d scale", "layer_decay")]
ORTHOGONAL = timm.optim.muon.zeropower_via_newtonschulz
WEIGHT_DECAY = 0.05  # of these trainings
TRAINING_LIMITS = {"float64": 1e-9, "float32": 1e-5}


def philox(seed, counter, subsequence):
    """The first 64 bits of core/philox.h."""
    mask = 0xFFFFFFFF
    c = [counter & mask, counter >> 32, subsequence & mask, subsequence >> 32]
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & mask, (a >> 32) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0] << 32 | c[1]


def order_of(count, seed):
    """The order of the images in the first epoch, as data/loader.cpp shuffles them."""
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = philox(seed, i, 1 << 61) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def make_images(folder, steps, seed):
    """An image folder, and its training images as (N, 3, H, W) in [0, 255], with labels, in the order of the files."""
    random = np.random.default_rng(seed)
    images, labels = [], []
    for label in range(CLASSES):
        for split, count in (("train", BATCH * steps // CLASSES), ("val", 1)):
            (folder / split / f"class{label}").mkdir(parents=True)
            for number in range(count):
                image = random.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
                image[:, :, label % 3] //= 1 + label
                Image.fromarray(image).save(folder / split / f"class{label}" / f"{number:05}.png")
                if split == "train":
                    images.append(image.transpose(2, 0, 1))
                    labels.append(label)
    return np.stack(images), np.array(labels)


def batches_of(folder, steps):
    """Images as the network gets them, and labels, in the order of the epoch."""
    images, labels = make_images(folder, steps, 4)
    order = order_of(len(images), 3)
    column = lambda values: np.array(values, np.float32).reshape(3, 1, 1)
    return (torch.from_numpy((images[order].astype(np.float32) / np.float32(255) - column(MEAN)) / column(STD)),
            torch.from_numpy(labels[order]))


def make_network(library, name, options, classes):
    if library == "timm":
        given = {"img_size": SIZE} if name.startswith("vit") else {}
        for option in options.split():
            given |= OPTIONS[option][0]
        return timm.create_model(name, num_classes=classes, **given)
    return getattr(torchvision.models, name)(num_classes=classes, zero_init_residual=True)  # as timm does by default


def stir(network, seed):
    """Gives the running statistics and biases of norms values that matter, and norms that begin at 0 a small weight."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, x in network.state_dict().items():
            if key.endswith("running_var"):
                x.copy_(0.5 + torch.rand(x.shape, generator=generator))
            elif x.dim() == 1 and not key.endswith("weight"):
                x.add_(0.02 * torch.randn(x.shape, generator=generator))
            elif key.endswith("weight") and x.dim() == 1:
                x.mul_(0.9 + 0.2 * torch.rand(x.shape, generator=generator)).clamp_(min=0.2)


def norma_train(arguments, model, options, weights, data, output, precision, channels_last, steps, lr, more):
    command = [arguments.norma, "train", "--model", model, "--initial-checkpoint", weights, "--dataset", "imagefolder",
               "--data-dir", data, "--img-size", SIZE, "--crop-pct", 1, "--batch-size", BATCH,
               "--images", BATCH * steps,
               "--lr", lr, "--sched", "constant", "--seed", 3, "--precision", precision, "--log-interval", 1,
               "--workers", 0, "--quiet", "--output", output, *more]
    command += [] if channels_last else ["--no-channels-last"]
    command += [word for option in options.split() for word in OPTIONS[option][1]]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=output.parent)
    if run.returncode != 0:
        sys.exit(f"finetune: norma train failed with exit code {run.returncode}: {run.stderr.strip()}")
    rows = (output / "metrics.csv").read_text().splitlines()[1:]
    state = {key: x for key, x in load_file(output / "last.safetensors").items()
             if not key.startswith(("optimizer.", "ema."))}
    return state, [float(row.split(",")[4]) for row in rows]


def torch_sgd(network, stem):
    for key in stem:
        part = network.get_submodule(key).requires_grad_(False)
        part.eval()
    trained = [(key, x) for key, x in network.named_parameters() if x.requires_grad]
    is_gain = lambda x: x.dim() == 4 and x.numel() == x.shape[0]
    decays = lambda key, x: x.dim() > 1 and not is_gain(x) and key not in ("cls_token", "pos_embed")
    return torch.optim.SGD([{"params": [x for key, x in trained if decays(key, x)], "weight_decay": DECAY},
                            {"params": [x for key, x in trained if not decays(key, x)]}], lr=LR, momentum=MOMENTUM)


def timm_optimizer(network, opt, lr, layer_decay):
    optimizer = timm.optim.create_optimizer_v2(network, "momentum" if opt == "sgd" else opt, lr=lr,
                                               weight_decay=WEIGHT_DECAY, momentum=MOMENTUM, layer_decay=layer_decay)
    for group in optimizer.param_groups:  # which timm's schedules do
        group["lr"] *= group.get("lr_scale", 1)
    return optimizer


def torch_train(library, name, options, start, optimizer_of, images, labels, dtype, channels_last, steps, smoothing=0,
                clip=None):
    network = make_network(library, name, options, CLASSES).to(dtype)
    network.load_state_dict({key: x.to(dtype) if x.is_floating_point() else x for key, x in start.items()})
    network = network.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format).train()
    optimizer = optimizer_of(network)
    losses = []
    for step in range(steps):
        some = slice(step * BATCH, (step + 1) * BATCH)
        x = images[some].to(dtype)
        loss = torch.nn.functional.cross_entropy(network(x), labels[some], label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return network.state_dict(), losses


def compare(found, expected, names):
    """The largest difference of a tensor as a share of its largest element, and the tensor."""
    worst = (0.0, "")
    for name in names:
        a, b = found[name].double().reshape(-1), expected[name].double().reshape(-1)
        distance = ((a - b).abs().max() / b.abs().max()).item()
        if not distance <= worst[0]:  # also takes NaN
            worst = (distance if distance == distance else float("inf"), name)
    return worst


def run_case(arguments, library, name, options, folder, failures):
    stem = STEMS[name.rstrip("0123456789").split("_")[0]]
    torch.manual_seed(1 if library == "timm" else 2)
    network = make_network(library, name, options, FILE_CLASSES)
    stir(network, 2)
    files = [folder / "weights.safetensors", folder / "weights.pth"]
    save_file({key: x.contiguous() for key, x in network.state_dict().items()}, files[0])
    torch.save(network.state_dict(), files[1])
    data = folder / "data"
    images, labels = batches_of(data, arguments.steps)
    more = [*SGD, "--freeze", ",".join(part + ".*" for part in stem)]

    # The head's start values are Norma's: a step at a rate of nearly 0 shows them.
    first, _ = norma_train(arguments, name, options, files[0], data, folder / "head", "float64", False, 1, 1e-300, more)
    start = dict(network.state_dict())
    for key in start:
        if found := [other for other in first if other == key and first[other].numel() != start[key].numel()]:
            start[key] = first[found[0]].reshape(CLASSES, *start[key].shape[1:]).float()
    frozen = [key for key in start if key.startswith(tuple(part + "." for part in stem))]
    trained = [key for key in start if key not in frozen and start[key].is_floating_point()]

    optimizer_of = functools.partial(torch_sgd, stem=stem)
    wide, _ = torch_train(library, name, options, start, optimizer_of, images, labels, torch.float64, False,
                          arguments.steps)
    for precision, dtype, limit in (("float32", torch.float32, 1e-5), ("float64", torch.float64, 1e-10)):
        for channels_last in (False, True):
            theirs, losses = torch_train(library, name, options, start, optimizer_of, images, labels, dtype,
                                         channels_last, arguments.steps)
            file = files[int(channels_last)]
            output = folder / f"{precision}-{channels_last}"
            ours, our_losses = norma_train(arguments, name, options, file, data, output, precision, channels_last,
                                           arguments.steps, LR, more)
            distance, tensor = compare(ours, theirs, trained)
            own, _ = compare(theirs, wide, trained)
            steps = min(compare(theirs, start, [key])[0] for key in trained if start[key].dim() > 1)
            loss = max(abs(a - b) for a, b in zip(our_losses, losses, strict=True))
            moved = [key for key in frozen
                     if not torch.equal(ours[key].to(start[key].dtype).reshape(start[key].shape), start[key])]
            fault = f"  FAILED: moved: {', '.join(moved)}" if moved else ""
            if not distance <= limit + (4 * own if precision == "float32" else 0):
                fault += "  FAILED"
            failures += [name] if fault else []
            print(f"{library:12} {name:22} {file.suffix:13} {precision:8} "
                  f"{'channels_last' if channels_last else 'contiguous':14} {distance:8.1e}  {own:8.1e}  "
                  f"{loss:8.1e}  {steps:7.1e}  {tensor}{'  with ' + options if options else ''}{fault}", flush=True)


def largest_share(found, expected):
    shares = [abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)]
    return max(shares) if all(share == share for share in shares) else float("inf")


def run_training(arguments, training, folder, failures):
    name, opt, lr, options, optimization = training
    timm_name = name + "_patch16_224"
    torch.manual_seed(1)
    network = make_network("timm", timm_name, options, CLASSES)
    stir(network, 2)
    start = network.state_dict()
    weights = folder / "weights.safetensors"
    save_file({key: x.contiguous() for key, x in start.items()}, weights)
    (folder / "patch_norm.toml").write_text('"patch_embed.norm" = "layer2d"\n')
    images, labels = batches_of(folder / "data", arguments.steps)
    words = {word: OPTIMIZATION[word] for word in optimization.split()}
    more = ["--opt", opt, "--momentum", MOMENTUM, "--weight-decay", WEIGHT_DECAY, *itertools.chain(*words.values())]
    value_of = lambda word: words[word][1] if word in words else None
    optimizer_of = functools.partial(timm_optimizer, opt=opt, lr=lr, layer_decay=value_of("layer_decay"))
    theirs = {}
    for precision, dtype, channels_last in (("float64", torch.float64, False), ("float32", torch.float32, True)):
        timm.optim.muon.zeropower_via_newtonschulz = functools.partial(ORTHOGONAL, dtype=dtype)
        _, losses = torch_train("timm", timm_name, options, start, optimizer_of, images, labels, dtype, channels_last,
                                arguments.steps, value_of("smoothing") or 0, value_of("clip"))
        theirs[precision] = losses
        _, ours = norma_train(arguments, name, options, weights, folder / "data", folder / precision, precision,
                              channels_last, arguments.steps, lr, more)
        distance, own = largest_share(ours, losses), largest_share(losses, theirs["float64"])
        fault = "" if distance <= TRAINING_LIMITS[precision] + 4 * own else "  FAILED"
        failures += [name] if fault else []
        print(f"{name:9} {opt:9} {lr:<6} {precision:8} {'channels_last' if channels_last else 'contiguous':14} "
              f"{losses[0]:6.3f}  {losses[-1]:6.3f}  {distance:10.1e}  {own:8.1e}  "
              f"{' '.join([options, optimization]).strip() or 'plain'}{fault}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norma", type=pathlib.Path, default=ROOT / "build/cpu-release/cli/norma")
    parser.add_argument("--only", action="append", help="only this model, or trainings (may be repeated)")
    parser.add_argument("--steps", type=int, default=20, help="a multiple of 5")
    arguments = parser.parse_args()
    arguments.norma = arguments.norma.resolve()
    if not arguments.norma.exists():
        sys.exit(f"finetune: {arguments.norma} does not exist; build it first: ./run build")
    print(f"{arguments.steps} steps of {BATCH} images of {SIZE}x{SIZE}; PyTorch {torch.__version__}, "
          f"torchvision {torchvision.__version__}, timm {timm.__version__}")
    print(f"{'library':12} {'network':22} {'file':13} {'dtype':8} {'format':14} {'tensors':8}  {'own f64':8}  "
          f"{'loss':8}  {'steps':7}  worst tensor", flush=True)
    failures = []
    for library, name, options in CASES:
        if not arguments.only or name in arguments.only:
            with tempfile.TemporaryDirectory() as folder:
                run_case(arguments, library, name, options, pathlib.Path(folder), failures)
    if not arguments.only or "trainings" in arguments.only:
        print(f"{'network':9} {'optimizer':9} {'rate':6} {'dtype':8} {'format':14} {'first':6}  {'last':6}  "
              f"{'difference':10}  {'own f64':8}  with", flush=True)
        for training in TRAININGS:
            with tempfile.TemporaryDirectory() as folder:
                run_training(arguments, training, pathlib.Path(folder), failures)
    sys.exit(f"finetune: {len(failures)} failed" if failures else 0)


if __name__ == "__main__":
    main()
