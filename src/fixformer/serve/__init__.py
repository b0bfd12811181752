"""The page and its HTTP interface: `fixformer serve`.

The process that speaks HTTP (`server`, `interface`, `guard`, `uploads`, `workshop`) imports neither torch nor a
decoder, and never looks into an upload. A second process (`nursery`) holds the model and forks a new process for every
request (`work`), which decodes and computes within limits of memory and time, and may be killed.
"""
