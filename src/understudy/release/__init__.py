"""What a run releases: a model, its codec and a statement of what it cost; how it is sampled, saved and read back."""

from understudy.release.folder import RELEASE_FILES as RELEASE_FILES
from understudy.release.folder import AnyRelease as AnyRelease
from understudy.release.folder import digest_of as digest_of
from understudy.release.folder import is_graph_release as is_graph_release
from understudy.release.folder import saved_by as saved_by
from understudy.release.release import BATCH_ROWS as BATCH_ROWS
from understudy.release.release import Release as Release
from understudy.release.release import check_seed as check_seed
from understudy.release.release import check_size as check_size
from understudy.release.release import sample_record as sample_record
