"""The budget book of a data set: one file that holds the limit for all its releases, and what each of them has used."""

from understudy.institution.book.book import BudgetBook as BudgetBook
from understudy.institution.book.policy import Policy as Policy
