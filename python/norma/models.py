"""Networks by name: ResNet, ConvNeXt and ConvNeXt V2, each with any norm."""

from norma._norma import create_model, model_names

__all__ = ["create_model", "model_names"]
