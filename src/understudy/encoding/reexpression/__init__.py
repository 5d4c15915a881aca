"""Columns that are modelled in another form, so that the rules of a schema hold by construction."""

from understudy.encoding.reexpression.reexpression import Limits as Limits
from understudy.encoding.reexpression.reexpression import Reexpression as Reexpression
from understudy.encoding.reexpression.reexpression import on_break as on_break
from understudy.encoding.reexpression.reexpression import reexpress as reexpress
from understudy.encoding.reexpression.reexpression import rule_notes as rule_notes
