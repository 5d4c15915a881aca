"""What an institution keeps about its releases: a budget book, evidence bundles, catalogue records."""
