"""Who takes part in a round, for the setting `sampler`: see engine.sampling."""

from fedjax_opt.engine.sampling import (
  Sampler,
  cyclic,
  fixed,
  uniform,
  weighted,
)

__all__ = ["Sampler", "cyclic", "fixed", "uniform", "weighted"]
