"""What checks of components stand on: cases, a tiny world, a small run in it, and guards.

``cases`` (promises and how they are checked), ``tiny`` (data and backbone), ``small_run`` (a run on them),
``moved_session`` (what a forward is checked with after it), ``changes`` (what is compared before and after),
``guards`` (around a component's code: no network, seeded generators, errors with a remedy) and ``evidence``
(made by hand).
"""
