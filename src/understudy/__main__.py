"""`python -m understudy`: the command line."""

from understudy.cli import main

main()
