"""Planted faults: small patches of the sources, and the tests that must fail with each of them."""
