"""Loading: plan, prepare, stream, finish.

`plan.py` and its helpers decide and are pure; `run.py` carries a plan out with the threads of `feed.py` and
`session.py`. The room knows neither the lab nor AWS: credentials and connections arrive as callables.
"""
