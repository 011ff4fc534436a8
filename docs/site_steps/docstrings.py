"""Changes what napoleon would misread in docstrings, and signatures."""

import inspect
import re

from sphinx.domains.python import PyObject

# A role or a literal, which stay as they are; or code in single backticks.
_CODE = re.compile(r"(:\w+:`[^`]+`|``[^`]+``)|`([^`]+)`")


def _docstring(app, kind, name, member, options, lines) -> None:
  """Changes what napoleon would misread.

  Code in single backticks gets two, so that a colon in it ends no type; and a
  result is described by a sentence, which may have colons, without a type.
  """
  text = _CODE.sub(
    lambda code: code[1] or f"``{' '.join(code[2].split())}``",
    "\n".join(lines),
  )
  lines[:] = re.sub(r"(?m)^(Returns:\n +)", r"\1: ", text).split("\n")


# What stands for an object without a literal: `<function relu at 0x7f>`.
_OBJECT = re.compile(r"(\w+)=<(?:[^<>]|<\w+>)*>(, )?")


def _signature(app, kind, name, member, options, signature, returns):
  """Names functions that are defaults, and hides what flax adds to modules."""
  if not signature or "=<" not in signature:
    return None
  parameters = inspect.signature(member).parameters

  def named(match):
    if match[0].startswith("parent=<flax"):
      return ""
    label = getattr(parameters[match[1]].default, "__name__", "...")
    label = label if label.isidentifier() else "..."
    return f"{match[1]}={label}{match[2] or ''}"

  if "parent=<flax" in signature:
    signature = signature.replace(", name=None)", ")")
  return _OBJECT.sub(named, signature).replace(", )", ")"), returns


def setup(app) -> None:
  for field in PyObject.doc_field_types:
    if field.name == "variable":
      field.label = "Attributes"
  app.connect("autodoc-process-docstring", _docstring, priority=100)
  app.connect("autodoc-process-signature", _signature)
