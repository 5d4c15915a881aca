"""Marginal-based methods share this: select cliques, measure their marginals, estimate a model."""
