"""A local web page for the whole way from a file to its certificate, which only this machine can open.

The server holds no state of its own: schema, runs and results are files in one folder. A run is the command
`understudy synth` in a process of its own, so it goes on when the page is closed or the server stops.
"""
