#!/usr/bin/env python3
"""Prints the tables of tests/train/schedules_test.cpp: learning rates by timm's definitions of its schedules
(CosineLRScheduler, PolyLRScheduler, MultiStepLRScheduler, StepLRScheduler), written from their formulas.

Runs of 10 epochs of 4 updates with a learning rate of 0.5. timm's --epochs leaves out the cool-down and the warm-up of
--warmup-prefix; here they are part of the 10.
"""

import math

LR, EPOCHS, UPDATES = 0.5, 10, 4
SHOWN = (0, 1, 3, 7, 8, 11, 12, 19, 27, 28, 31, 32, 39)


def curve(kind, t, length, o):
    if kind in ("cosine", "poly"):
        if t >= length:
            return o["min_lr"]
        share = 0.5 * (1 + math.cos(math.pi * t / length)) if kind == "cosine" else (1 - t / length) ** o["power"]
        return o["min_lr"] + (LR - o["min_lr"]) * share
    if kind == "multistep":
        return LR * o["rate"] ** sum(t >= m for m in o["milestones"])
    return LR * o["rate"] ** (t // o["every"])


def rates(kind, by_epoch=False, warmup=0, warmup_lr=1e-5, prefix=False, cooldown=0, **o):
    unit = 1 if by_epoch else UPDATES
    for name in ("milestones", "every"):
        if name in o:
            o[name] = [m * unit for m in o[name]] if name == "milestones" else o[name] * unit
    warmup, length = warmup * unit, (EPOCHS - cooldown - (warmup if prefix else 0)) * unit
    for step in SHOWN:
        t = step // UPDATES if by_epoch else step
        if t < warmup:
            yield warmup_lr + t * (LR - warmup_lr) / warmup
        else:
            yield curve(kind, t - warmup if prefix else t, length, o)


CASES = {
    "cosine": dict(kind="cosine", warmup=2, warmup_lr=0.01, cooldown=2, min_lr=0.02),
    "cosine after its warm-up": dict(kind="cosine", warmup=2, warmup_lr=0.01, prefix=True, cooldown=2, min_lr=0.02),
    "cosine by epochs": dict(kind="cosine", by_epoch=True, warmup=2, warmup_lr=0.01, cooldown=2, min_lr=0.02),
    "poly": dict(kind="poly", warmup=1, power=0.9, min_lr=0.01),
    "poly by epochs": dict(kind="poly", by_epoch=True, warmup=3, power=2, min_lr=0, cooldown=1),
    "multistep": dict(kind="multistep", warmup=2, warmup_lr=0.1, milestones=[3, 7], rate=0.2),
    "multistep by epochs": dict(kind="multistep", by_epoch=True, warmup=2, milestones=[3, 7], rate=0.2),
    "step after its warm-up": dict(kind="step", warmup=2, warmup_lr=0.1, prefix=True, every=3, rate=0.5),
    "step of 2.4 by epochs": dict(kind="step", by_epoch=True, every=2.4, rate=0.5),
}

for name, case in CASES.items():
    print(f"// {name}\n{{{', '.join(repr(rate) for rate in rates(**case))}}}")
