"""Scripts that run in the environments of peers. None imports Understudy, and Understudy imports none."""
