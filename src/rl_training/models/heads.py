"""The distributions that policies are made of, ours and those of a user's own module."""

from rl_training.kernels.heads import Categorical, DiagonalGaussian, Distribution, MultiCategorical, PolicyOutput, choices

__all__ = ["Categorical", "DiagonalGaussian", "Distribution", "MultiCategorical", "PolicyOutput", "choices"]
