"""How many seeds a study needs."""

import fedjax_opt as fo
from experiments.studies import seeds_needed
from tests.helpers.plans import asked
from tests.helpers.refusals import refusal


def test_what_seeds_are_needed_for_is_a_stored_study():
  line = refusal(asked, "--seeds_needed=0.01")
  assert "needs output_dir, the stored study" in line


def test_pairs_of_a_file_may_have_any_labels_and_any_spread(tmp_path):
  (tmp_path / "pairs.csv").write_text(
    'method,other,sd,seeds\n1,NA,0.02,5\n"a, x",c,225431,5\nb,c,,5\nc,d,,1\n'
  )
  study_request = asked("--seeds_needed=0.01", f"--output_dir={tmp_path}")
  caption, *_, unstable, row = seeds_needed.table(study_request)
  assert "1 pair has the same difference at all seeds" in caption
  assert unstable.startswith("“a, x” and c ")
  assert unstable.endswith("  more than 1,000,000  more than 1,000,000")
  assert row.startswith("1 and NA ")
  num_seeds = fo.statistics.seeds_needed(0.01, 0.02, num_pairs=3)
  assert row.split()[-2] == str(num_seeds)
