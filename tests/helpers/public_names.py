"""The public names of a module, and the arguments that functions check."""

import ast
import importlib
import inspect
import types

import fedjax_opt as fo


def names_of(module: types.ModuleType) -> list[str]:
  """Those of `__all__`, where fewer are public than have no underscore.

  Elsewhere they are the names that the module imports as themselves (`from a
  import b as b`), all that it imports by `*`, and those that it defines, unless
  it is a package.
  """
  if hasattr(module, "__all__"):
    return module.__all__
  names = []
  for node in ast.parse(inspect.getsource(module)).body:
    match node:
      case ast.ImportFrom(module=source, names=[ast.alias("*")]):
        names += names_of(importlib.import_module(source))
      case ast.ImportFrom(names=imported):
        names += [item.name for item in imported if item.name == item.asname]
      case _ if hasattr(module, "__path__"):
        pass
      case ast.FunctionDef(name) | ast.ClassDef(name):
        names.append(name)
      case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
        names.append(name)
  return sorted(name for name in names if not name.startswith("_"))


# Public functions that say what their arguments may be: "name argument" ->
# the function, the argument, and what it may be.
FACTORIES = {
  f"{name} {argument}": (factory, argument, field)
  for module in (
    *(fo, fo.rules, fo.prox, fo.transforms, fo.objectives),
    *(fo.partition, fo.synthetic, fo.samplers),
    *(fo.aggregators, fo.faults, fo.privacy),
  )
  for name, factory in vars(module).items()
  if inspect.isfunction(factory)
  for argument, field in getattr(factory, "checked_fields", {}).items()
}
