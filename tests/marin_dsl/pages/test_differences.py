"""Only what differs is shown, and nothing that differs is hidden."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.encoding import decode, encode
from marin_dsl.pages import Differences
from marin_dsl.pages.differences import UNSET, compare, leaves


def compared(**configurations):
    return compare(Differences("h", "c", configurations))


def names(settings) -> list[str]:
    return [setting.name for setting in settings]


def test_equal_settings_are_told_apart_from_differing_ones():
    result = compared(a={"lr": 0.1, "model": {"width": 4}}, b={"lr": 0.2, "model": {"width": 4}})
    assert names(result.differing) == ["lr"]
    assert names(result.equal) == ["model.width"]
    assert result.differing[0].values == ("0.1", "0.2")


def test_a_setting_that_one_arm_lacks_differs_and_says_so():
    (setting,) = compared(a={"momentum": 0.9}, b={}).differing
    assert setting.values == ("0.9", UNSET)
    assert setting.unset == (False, True)


def test_a_setting_of_the_text_not_set_is_not_taken_for_a_missing_one():
    (setting,) = compared(a={"x": UNSET}, b={}).differing
    assert setting.unset == (False, True)


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (1, "1"), (None, "None"), ((1,), [1])])
def test_equal_looking_values_of_different_types_differ(one, other):
    assert names(compared(a={"x": one}, b={"x": other}).differing) == ["x"]


def test_arrays_compare_by_their_numbers():
    assert names(compared(a={"x": np.array([1, 2])}, b={"x": np.array([1, 2])}).equal) == ["x"]
    assert names(compared(a={"x": np.array([1, 2])}, b={"x": np.array([1, 3])}).differing) == ["x"]


def test_an_empty_group_of_settings_differs_from_a_filled_one():
    assert names(compared(a={"x": {}}, b={"x": {"y": 1}}).differing) == ["x", "x.y"]


def test_one_arm_alone_and_no_arm_have_no_differences():
    assert compared(a={"x": 1}).differing == ()
    assert compared().differing == compared().equal == ()


def test_an_empty_text_is_visible():
    assert compared(a={"x": ""}, b={"x": "y"}).differing[0].values == ("(empty)", "y")


nested = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.none()),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
configuration = st.dictionaries(st.sampled_from("abc"), nested, max_size=3)


@given(configuration)
def test_an_arm_does_not_differ_from_itself(one):
    assert compared(a=one, b=dict(reversed(one.items()))).differing == ()


@given(configuration, configuration)
def test_every_setting_is_on_exactly_one_side(one, other):
    result = compared(a=one, b=other)
    found = names(result.differing) + names(result.equal)
    assert sorted(found) == sorted({".".join(path) for arm in (one, other) for path, _ in leaves(arm)})


@given(configuration, configuration)
def test_arms_without_differences_are_equal(one, other):
    assert (not compared(a=one, b=other).differing) == (dict(leaves(one)) == dict(leaves(other)))


def test_arms_stay_in_the_order_in_which_they_were_given_through_storage():
    arms = (("zeta", {"rate": 1}), ("a", {"rate": 2}), ("middle", {"rate": 3}))
    stored = decode(encode(Differences("h", "c", arms)))
    assert compare(stored).arms == ("zeta", "a", "middle")
