"""Optimizers."""

from norma._norma import SGD, AdamW, Lamb, Optimizer, clip_gradients_by_norm

__all__ = ["AdamW", "Lamb", "Optimizer", "SGD", "clip_gradients_by_norm"]
