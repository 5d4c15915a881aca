"""A local web page that leads from a file to its certificate, and that only this machine can open.

The server holds no state of its own: schema, runs and results are files in one folder. A run is the command
`understudy synth` in a process of its own, so it continues when the page is closed or the server stops.
"""
