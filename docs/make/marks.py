"""Parts of pages that programs make."""


def filled(text: str, title: str, made: str) -> str:
  """A page with what is between the two marks of a title made anew.

  The marks are comments: `<!-- models -->` and `<!-- end of models -->`.

  Args:
    text: the page; it stays as it is if it has no such mark.
    title: of the marks.
    made: what is between them.
  """
  begin, end = f"<!-- {title} -->\n", f"<!-- end of {title} -->"
  before, mark, rest = text.partition(begin)
  if not mark:
    return text
  return f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"
