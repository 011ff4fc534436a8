"""Readers of data sets that others publish, and of one's own files."""

from fedjax_opt.datasets import embedded as embedded
from fedjax_opt.datasets import femnist as femnist
from fedjax_opt.datasets import fmri as fmri
from fedjax_opt.datasets import image_folders as image_folders
from fedjax_opt.datasets import shakespeare as shakespeare
from fedjax_opt.datasets import tables as tables
from fedjax_opt.datasets import texts as texts
from fedjax_opt.datasets import tfds as tfds
from fedjax_opt.datasets import tokenization as tokenization
