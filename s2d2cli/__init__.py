"""s2d2: decode block-diffusion language models fast, and measure what speed costs in accuracy."""

__version__ = "0.1.0"
