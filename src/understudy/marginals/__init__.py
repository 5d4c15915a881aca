"""Shared by the marginal-based methods: measure marginals, and estimate a model from them."""
