"""Table to codes and back, and codes to the features of networks."""

from understudy.encoding.arrow import as_numbers as as_numbers
from understudy.encoding.arrow import bound_numbers as bound_numbers
from understudy.encoding.codec import Codec as Codec
from understudy.encoding.columns import CategoricalCodec as CategoricalCodec
from understudy.encoding.columns import NumericCodec as NumericCodec
from understudy.encoding.fit import assumed_domain as assumed_domain
from understudy.encoding.fit import fit_codec as fit_codec
from understudy.encoding.fit import merge_rarest as merge_rarest
