"""Table to codes and back, and codes to the features of networks."""

from understudy.encoding.arrow import as_numbers as as_numbers
from understudy.encoding.arrow import bound_numbers as bound_numbers
from understudy.encoding.codec import Codec as Codec
from understudy.encoding.columns import CategoricalCodec as CategoricalCodec
from understudy.encoding.columns import NumericCodec as NumericCodec
from understudy.encoding.contradictions import rule_warnings as rule_warnings
from understudy.encoding.fit import assumed_domain as assumed_domain
from understudy.encoding.fit import declared_codec as declared_codec
from understudy.encoding.fit import fit_codec as fit_codec
from understudy.encoding.fit import merge_rarest as merge_rarest
from understudy.encoding.reexpression import on_break as on_break
from understudy.encoding.reexpression import reexpress as reexpress
from understudy.encoding.reexpression import rule_notes as rule_notes
from understudy.encoding.units import check_id_prefix as check_id_prefix
from understudy.encoding.units import continue_ids as continue_ids
from understudy.encoding.units import describe_rows_per_unit as describe_rows_per_unit
from understudy.encoding.units import describe_units as describe_units
from understudy.encoding.units import group_into_units as group_into_units
from understudy.encoding.units import number_ids as number_ids
from understudy.encoding.units import pool_factor as pool_factor
from understudy.encoding.units import prefix_ids as prefix_ids
from understudy.encoding.units import unit_notes as unit_notes
from understudy.encoding.units import with_text_ids as with_text_ids
