"""GEM: a generator trained on privately measured marginals."""

from understudy.synthesizers.gem.method import GEM as GEM
