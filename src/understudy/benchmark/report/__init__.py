"""Reports of benchmark results: pages, figures, tests of ranks, comparisons of two sets of results."""
