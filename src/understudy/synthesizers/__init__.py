"""The methods, the protocol that all of them follow, and the expressions that name them."""

from understudy.synthesizers.expressions import express as express
from understudy.synthesizers.expressions import read_method as read_method
from understudy.synthesizers.expressions import read_setting as read_setting
from understudy.synthesizers.protocol import Capabilities as Capabilities
from understudy.synthesizers.protocol import HasTrajectory as HasTrajectory
from understudy.synthesizers.protocol import PublicUse as PublicUse
from understudy.synthesizers.protocol import Synthesizer as Synthesizer
from understudy.synthesizers.protocol import takes_public as takes_public
from understudy.synthesizers.protocol import too_large_for as too_large_for
from understudy.synthesizers.registry import AUTO as AUTO
from understudy.synthesizers.registry import LEARNERS as LEARNERS
from understudy.synthesizers.registry import SYNTHESIZERS as SYNTHESIZERS
from understudy.synthesizers.registry import describe_methods as describe_methods
from understudy.synthesizers.registry import learner_class as learner_class
from understudy.synthesizers.registry import name_of as name_of
from understudy.synthesizers.registry import synthesizer_class as synthesizer_class
