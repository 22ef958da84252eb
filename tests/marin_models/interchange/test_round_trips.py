import numpy as np
import pytest
from small_models import CONFIGS, bias, parameters

from marin_models.interchange import export_model, import_model


def exported(folder, family, **arguments):
    arguments = {"context_length": 64, "bias": bias(family), **arguments}
    assert export_model(folder, CONFIGS[family], parameters(family), **arguments) == family
    return folder


@pytest.mark.parametrize("family", CONFIGS)
def test_what_was_exported_is_imported_bit_for_bit(tmp_path, family):
    found = import_model(exported(tmp_path / "model", family))
    assert found.family == family
    assert found.config == CONFIGS[family]
    assert found.parameters.keys() == parameters(family).keys()
    for name, value in parameters(family).items():
        np.testing.assert_array_equal(found.parameters[name], value)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
