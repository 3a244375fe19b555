"""Optimizers."""

from norma._norma import SGD, AdamW, Lamb, Muon, Optimizer, clip_gradients_by_norm

__all__ = ["AdamW", "Lamb", "Muon", "Optimizer", "SGD", "clip_gradients_by_norm"]
