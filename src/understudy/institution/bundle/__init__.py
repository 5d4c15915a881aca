"""Evidence bundles: one zip file with everything that a data access committee needs to know about a release, and its
verification."""

from understudy.institution.bundle.verify import Verification as Verification
from understudy.institution.bundle.verify import verify_bundle as verify_bundle
from understudy.institution.bundle.write import write_bundle as write_bundle
