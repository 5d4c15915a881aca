"""Reports of benchmark results: pages, figures, tests of ranks, comparisons of two sets of results."""

from understudy.benchmark.report.comparison import compare_results as compare_results
from understudy.benchmark.report.comparison import render_comparison as render_comparison
from understudy.benchmark.report.markdown import render_markdown as render_markdown
from understudy.benchmark.report.page import render_html as render_html
from understudy.benchmark.report.quail import render_quail_html as render_quail_html
from understudy.benchmark.report.quail import render_quail_markdown as render_quail_markdown
from understudy.benchmark.report.records import ReportInfo as ReportInfo
