"""Draws a scorecard as one page that opens offline. What it shows was computed on real rows: it is not private."""

from understudy.report.page import render as render
from understudy.report.page import write_disclosure as write_disclosure
from understudy.report.page import write_report as write_report
