"""Optimizers, and schedules of their learning rate with the names and formulas of PyTorch's."""

from collections.abc import Callable

from norma._norma import (
    SGD, AdamW, Lamb, Muon, Optimizer, _cosine_schedule, _one_cycle_schedule, clip_grad_norm_)

__all__ = ["AdamW", "CosineAnnealingLR", "Lamb", "LambdaLR", "Muon", "OneCycleLR", "Optimizer", "SGD",
           "clip_grad_norm_"]


class LambdaLR:
    """The optimizer's learning rate is its first one times lr_lambda(number of calls of step())."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.optimizer, self.lr_lambda, self.base_lr, self.last_epoch = optimizer, lr_lambda, optimizer.lr, -1
        self.step()

    def step(self) -> None:
        self.last_epoch += 1
        self.optimizer.lr = self.base_lr * self.lr_lambda(self.last_epoch)

    def get_last_lr(self) -> list[float]:
        return [self.optimizer.lr]


class CosineAnnealingLR(LambdaLR):
    """Half a period of the cosine, down to eta_min at T_max, and eta_min behind it."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0) -> None:  # noqa: N803
        super().__init__(optimizer, _cosine_schedule(T_max, eta_min / optimizer.lr))


class OneCycleLR(LambdaLR):
    """Up to max_lr and down to its part, by cosines. The momentum stays."""

    def __init__(self, optimizer: Optimizer, max_lr: float, total_steps: int, pct_start: float = 0.3,
                 div_factor: float = 25, final_div_factor: float = 1e4) -> None:
        optimizer.lr = max_lr
        super().__init__(optimizer, _one_cycle_schedule(total_steps, pct_start, div_factor, final_div_factor))
