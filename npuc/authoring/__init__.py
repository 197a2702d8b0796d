"""Tools for kernel authors: finding kernels in files and packages, trying, pricing and tuning them."""
