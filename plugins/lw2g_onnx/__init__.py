"""Trained models as ONNX files, for programs without lw2g and torch."""
