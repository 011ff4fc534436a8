"""Texts that are written whole."""

import os

from fedjax_opt.files import json_files


def test_a_text_with_a_path_of_any_bytes(tmp_path):
  name = os.fsdecode(b"b\xff\xce\xb1")
  json_files.write_text(tmp_path / name, f"{name}, a\u03b1")
  assert (tmp_path / name).read_bytes() == "b\\udcff\u03b1, a\u03b1".encode()
