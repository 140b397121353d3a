"""Every learner still makes of fixed seeds what it made when the file of golden parameters was written."""

import golden_updates
import numpy as np
import pytest


@pytest.mark.parametrize("case", golden_updates.CASES)
def test_twenty_updates_end_with_the_golden_parameters(case):
    with np.load(golden_updates.PATH) as golden:
        expected = golden[case]
    np.testing.assert_allclose(golden_updates.parameters_after(case), expected, rtol=0, atol=1e-5)
