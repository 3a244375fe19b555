"""Networks by name: ResNet, ConvNeXt, ConvNeXt V2 and ViT, each with any norm."""

from norma._norma import create_model, model_names

__all__ = ["create_model", "model_names"]
