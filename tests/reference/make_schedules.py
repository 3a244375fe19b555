#!/usr/bin/env python3
"""Prints the tables of tests/train/schedules_test.cpp: learning rates of timm's schedules.

Usage: make_schedules.py (needs torch and timm; the kept tables are timm 1.0.31's)

Runs of 10 epochs of 4 updates with a learning rate of 0.5. timm's --epochs leaves out the cool-down and the warm-up of
--warmup-prefix; here they are part of the 10.
"""

import torch
from timm.scheduler import create_scheduler_v2

LR, EPOCHS, UPDATES = 0.5, 10, 4
SHOWN = (0, 1, 3, 7, 8, 11, 12, 19, 27, 28, 31, 32, 39)


def rates(by_epoch=False, warmup_epochs=0, warmup_prefix=False, cooldown_epochs=0, **options):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    scheduler, _ = create_scheduler_v2(
        optimizer, num_epochs=EPOCHS - cooldown_epochs - (warmup_epochs if warmup_prefix else 0),
        warmup_epochs=warmup_epochs, warmup_prefix=warmup_prefix, cooldown_epochs=cooldown_epochs,
        step_on_epochs=by_epoch, updates_per_epoch=UPDATES, **options)
    for update in SHOWN:
        if by_epoch:
            scheduler.step(update // UPDATES)
        else:
            scheduler.step_update(update)
        yield optimizer.param_groups[0]["lr"]


COSINE = dict(sched="cosine", warmup_epochs=2, warmup_lr=0.01, cooldown_epochs=2, min_lr=0.02)
MULTISTEP = dict(sched="multistep", warmup_epochs=2, decay_milestones=[3, 7], decay_rate=0.2)
CASES = {
    "cosine": COSINE,
    "cosine after its warm-up": dict(COSINE, warmup_prefix=True),
    "cosine by epochs": dict(COSINE, by_epoch=True),
    "poly": dict(sched="poly", warmup_epochs=1, decay_rate=0.9, min_lr=0.01),
    "poly by epochs": dict(sched="poly", by_epoch=True, warmup_epochs=3, decay_rate=2, cooldown_epochs=1),
    "multistep": dict(MULTISTEP, warmup_lr=0.1),
    "multistep by epochs": dict(MULTISTEP, by_epoch=True),
    "multistep after its warm-up": dict(MULTISTEP, warmup_prefix=True),
    "step after its warm-up": dict(sched="step", warmup_epochs=2, warmup_lr=0.1, warmup_prefix=True, decay_epochs=3,
                                   decay_rate=0.5),
    "step of 2.4 by epochs": dict(sched="step", by_epoch=True, decay_epochs=2.4, decay_rate=0.5),
}

for name, case in CASES.items():
    print(f"// {name}\n{{{', '.join(repr(rate) for rate in rates(**case))}}}")
