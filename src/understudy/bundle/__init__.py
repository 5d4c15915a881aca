"""Evidence bundles: one zip file with all that a data access committee needs about a release, and its verification."""

from understudy.bundle.verify import Verification as Verification
from understudy.bundle.verify import verify_bundle as verify_bundle
from understudy.bundle.write import write_bundle as write_bundle
