"""First-party backbones: the embedded micro ViT, any timm ViT, and the checkpoints of the literature."""
