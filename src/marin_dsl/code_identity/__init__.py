"""What an operator's code is, independent of layout, comments and location.

The digest covers the function's normalised syntax (without comments, docstrings, annotations, layout and the names of
local variables), the values of its defaults and closure, and everything it names that belongs to the user's project:
functions, classes, methods, constants, decorators as they really wrap, transitively, circles as one unit; and so do the
classes of the project that annotations name, for their methods are what an argument brings along. What is
installed (and this package) counts by module and qualified name. Names of helpers, modules and files do not count;
names of parameters (also a lambda's: keywords use them) and of classes (values and messages carry them) do.

What it cannot see, and reports in `CodeIdentity.opaque` where it can tell; name such things in `includes=`:

- `getattr` with a computed name, `eval`, `exec`, `importlib.import_module`, names that have no value yet;
- what `x.f()` reaches for an argument `x` where no annotation says of which class of the project it is;
- compiled extensions, and functions without source, whose bytecode stands in (it changes between Pythons);
- state of third-party objects that can neither be encoded nor pickled, of iterators and of generators of random numbers
  (only their type counts), caches inside third-party wrappers and options of them other than plain values, attributes
  set on functions unless the code reads them, `__name__` of functions;
- files, environment variables, anything read while running; what the code itself changes as it runs (a cache that it
  fills counts with what is in it when it is first looked at).

What is changed afterwards by others (a cell of a notebook that is run anew, a constant that is set, a module that is
loaded again) is noticed when `CodeIdentity.is_current` is asked, which costs little.
"""

from .identity import CodeIdentity, code_identity, diff, is_of_project

__all__ = ["CodeIdentity", "code_identity", "diff", "is_of_project"]
