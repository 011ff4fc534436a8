"""What the tests of figures share."""

import pytest

pytest.importorskip("matplotlib")
