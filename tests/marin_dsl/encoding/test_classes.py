"""Users' classes as values: exact restoring, neutral fields, schemas, renames, names."""

import dataclasses
import os
import subprocess
import sys
from typing import NamedTuple

import attrs
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from marin_dsl.encoding import Named, Undecodable, Unencodable, decode, encodable, encode, register_codec, registry
from marin_dsl.testing import same
from tests.marin_dsl.encoding import examples
from tests.marin_dsl.encoding.examples import Derived, OwnInit, Point, Private, Schedule, Split, Started


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Classes that a test registers are forgotten after it."""
    monkeypatch.setattr(registry, "_BY_CLASS", dict(registry._BY_CLASS))
    monkeypatch.setattr(registry, "_BY_NAME", dict(registry._BY_NAME))


def test_a_neutral_field_that_equals_its_default_is_left_out():
    assert encode(Schedule(0.1, warmup=0, names=[])) == encode(Schedule(0.1))
    assert set(decode(encode(Schedule(0.1)), nameless=True).fields) == {"rate", "decay"}
    assert set(decode(encode(Schedule(0.1, warmup=1)), nameless=True).fields) == {"rate", "decay", "warmup"}


def test_a_neutral_field_equal_in_value_but_not_in_type_is_kept():
    assert encode(Schedule(0.1, warmup=False)) != encode(Schedule(0.1))
    assert decode(encode(Schedule(0.1, warmup=False))).warmup is False


def test_adding_a_neutral_field_keeps_every_identity_and_reads_old_values():
    @encodable(name="tests:Growing")
    @attrs.frozen
    class Before:
        x: int

    old = encode(Before(1))
    registry._BY_NAME.clear()

    @encodable(name="tests:Growing")
    @attrs.frozen
    class After:
        x: int
        y: int = attrs.field(default=3, metadata={"neutral": True})

    assert encode(After(1)) == old
    assert decode(old) == After(1, 3)


def test_defaults_of_an_absent_field_are_made_anew_for_each_value():
    one, other = decode(encode(Schedule(0.1))), decode(encode(Schedule(0.1)))
    one.names.append("spoilt")
    assert other.names == []
    assert Schedule(0.1).names == []


def test_a_neutral_field_without_default_is_refused_at_the_class():
    with pytest.raises(TypeError, match=r"^@encodable: field `x` of .*Bad is neutral, so it needs a default$"):

        @encodable
        @attrs.frozen
        class Bad:
            x: int = attrs.field(metadata={"neutral": True})


def test_an_unencodable_part_of_a_neutral_field_is_named():
    with pytest.raises(Unencodable) as caught:
        encode([Schedule(0.1, names=["a", object()])])
    assert str(caught.value) == (
        "at `[0].names[1]`: a object has no encoding; pass plain data, or register the class with `register_codec`"
    )


def test_a_converter_is_not_run_again_on_what_it_gave():
    assert decode(encode(Split("a b c"))) == Split("a b c")
    assert decode(encode(Split("a b c"))).words == ["a", "b", "c"]


def test_private_fields_come_back():
    back = decode(encode(Private(1, 5)))
    assert same(back, Private(1, 5))


def test_a_field_that_the_class_sets_itself_is_kept_as_it_was_set_and_a_cache_is_not():
    shape = Derived(3)
    shape.area = 10
    shape.cache["x"] = 1
    back = decode(encode(shape))
    assert (back.side, back.area, back.cache) == (3, 10, {})
    assert encode(shape) != encode(Derived(3))


def test_attributes_set_after_the_fields_are_set_again():
    assert decode(encode(Started(3))).state == 21


def test_a_class_with_its_own_init_is_restored_without_it():
    assert decode(encode(OwnInit(1, 2, 3))) == OwnInit(6)


def test_cached_hashes_work_after_restoring():
    for value in (examples.Hashed(3), examples.HashedLoose(3)):
        assert hash(decode(encode(value))) == hash(value)
        assert decode(encode({value})) == {value}


def test_equinox_modules_come_back_with_numpy_leaves():
    import jax

    @encodable
    class Layer(eqx.Module):
        linear: eqx.Module
        scale: float = eqx.field(static=True)
        weights: jnp.ndarray

        def __init__(self, size):
            self.linear = Inner(jnp.ones((size, size)))
            self.scale = 0.5
            self.weights = jnp.arange(size)

    @encodable
    class Inner(eqx.Module):
        matrix: jnp.ndarray

        def __call__(self, x):
            return self.matrix @ x

    encodable(eqx.nn.Linear)
    linear = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    back = decode(encode([Layer(3), linear]))
    assert type(back[0]) is Layer
    assert same(back[0].weights, np.arange(3, dtype=np.int32))
    assert back[0].linear(np.ones(3)).tolist() == [3, 3, 3]
    assert np.allclose(back[1](jnp.ones(3)), linear(jnp.ones(3)))
    assert encode(back) == encode([Layer(3), linear])


def test_objects_are_read_without_their_class_as_named_fields():
    data = encode({"p": Point(1, [Point(2)]), "c": examples.Colour.RED, "a": examples.Access(3)})
    found = decode(data.replace(b"marin_dsl", b"martian_x"), nameless=True)  # a package that does not exist
    module = "tests.martian_x.encoding.examples"
    assert found == {
        "p": Named(f"{module}:Point", {"x": 1, "y": [Named(f"{module}:Point", {"x": 2, "y": 0})]}),
        "c": Named(f"{module}:Colour", {"name": "RED"}),
        "a": Named(f"{module}:Access", {"value": 3}),
    }


def test_objects_as_keys_and_members_are_read_without_their_class():
    value = {Point(1, 2): "a", examples.Colour.RED: "b", (Point(1, 3),): {Point(1, 4), Point(1, 5)}}
    found = decode(encode(value), nameless=True)
    assert len(found) == 3
    name = "tests.marin_dsl.encoding.examples"
    assert found[Named(f"{name}:Point", {"x": 1, "y": 2})] == "a"
    assert found[Named(f"{name}:Colour", {"name": "RED"})] == "b"


def test_a_renamed_class_reads_what_was_written_under_its_earlier_name():
    @encodable(name="tests:OldName")
    @attrs.frozen
    class Old:
        x: int

    data = encode(Old(1))
    registry._BY_NAME.clear()

    @encodable(name="tests:NewName", earlier_names=("tests:OldName",))
    @attrs.frozen
    class New:
        x: int

    assert decode(data) == New(1)
    assert decode(encode(New(1))) == New(1)


def test_two_classes_cannot_have_one_name_and_a_refused_one_leaves_nothing():
    with pytest.raises(ValueError) as caught:
        encodable(name="tests:Free", earlier_names=("tests:Schedule",))(examples.Loose)
    assert str(caught.value) == (
        "`tests:Schedule` already names tests.marin_dsl.encoding.examples:Schedule; give "
        "tests.marin_dsl.encoding.examples:Loose a name of its own"
    )
    assert "tests:Free" not in registry._BY_NAME
    assert decode(encode(examples.Loose(1))).x == 1


def test_a_class_that_is_defined_anew_takes_its_own_place():
    def define():
        @encodable
        @attrs.frozen
        class Again:
            x: int

        return Again

    define()
    second = define()
    assert type(decode(encode(second(1)))) is second


def refused(data):
    with pytest.raises(Undecodable) as caught:
        decode(data)
    return str(caught.value).partition("read here: ")[2]


def test_another_schema_is_refused_with_both_numbers():
    data = encode(Schedule(0.1)).replace(b"tests:Schedule\x03", b"tests:Schedule\x02")
    assert refused(data) == "`tests:Schedule` was written with schema 2, and the class here has schema 3"


def test_a_field_that_the_class_has_no_more_is_named():
    data = encode(Schedule(0.1)).replace(b"edecay", b"ezecay")
    assert refused(data) == (
        "`tests:Schedule` cannot be made from what is stored: tests.marin_dsl.encoding.examples:Schedule has no field "
        "zecay: the value was written by another version of the class; raise its schema number and register the "
        "earlier layout"
    )


def test_a_field_that_the_value_lacks_is_named():
    @encodable(name="tests:Lacking")
    @attrs.frozen
    class Before:
        x: int

    data = encode(Before(1))
    registry._BY_NAME.clear()

    @encodable(name="tests:Lacking")
    @attrs.frozen
    class After:
        x: int
        y: int

    assert refused(data).endswith(
        "After needs y, which the value lacks: it was written by another version of the class; give the field a "
        "default, or raise the schema number"
    )


def test_a_class_that_cannot_be_found_is_named_with_advice():
    data = encode(Point(1)).replace(b"Point", b"Paint")
    assert refused(data) == (
        "`tests.marin_dsl.encoding.examples:Paint` cannot be imported here (module 'tests.marin_dsl.encoding.examples' "
        "has no attribute 'Paint'); is the project's code on the path?"
    )
    other = encode(Schedule(0.1)).replace(b"tests:Schedule", b"tests_Schedule")
    assert (
        refused(other) == ("'no encodable class is registered as `tests_Schedule`; import the module that defines it'")
        or refused(other) == "no encodable class is registered as `tests_Schedule`; import the module that defines it"
    )


def test_a_module_that_is_not_imported_yet_is_imported_by_name(tmp_path, monkeypatch):
    (tmp_path / "users_shapes.py").write_text(
        "import attrs\nfrom marin_dsl.encoding import encodable\n@encodable\n@attrs.frozen\nclass Shape:\n    x: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import users_shapes

    data = encode(users_shapes.Shape(4))
    del sys.modules["users_shapes"]
    registry._BY_NAME.pop("users_shapes:Shape")
    assert decode(data).x == 4


def test_a_class_without_fields_is_refused():
    with pytest.raises(TypeError) as caught:

        @encodable
        class Bare:
            pass

    assert str(caught.value).endswith(
        "Bare declares no fields; make it an attrs class, a dataclass or a NamedTuple (with @encodable above the "
        "decorator that makes it one), or use register_codec(...) to say how it becomes fields and comes back"
    )


def test_a_dataclass_with_arguments_that_it_does_not_keep_is_refused():
    with pytest.raises(TypeError, match=r"has arguments that it does not keep \(InitVar\), so it cannot be made again"):

        @encodable
        @dataclasses.dataclass
        class Seeded:
            x: int
            seed: dataclasses.InitVar[int]

            def __post_init__(self, seed):
                self.x += seed


def test_a_codec_of_ones_own_gives_a_foreign_class_an_encoding():
    class Celsius:
        def __init__(self, degrees):
            self.degrees = degrees

    register_codec(
        Celsius,
        name="tests:Celsius",
        to_fields=lambda value: {"degrees": value.degrees},
        from_fields=lambda fields: Celsius(fields["degrees"]),
    )
    assert decode(encode([Celsius(21.5)]))[0].degrees == 21.5


def test_an_error_in_a_codec_of_ones_own_names_the_class():
    class Odd:
        pass

    register_codec(Odd, name="tests:Odd", to_fields=lambda value: {}, from_fields=lambda fields: 1 // 0)
    assert refused(encode(Odd())).startswith("`tests:Odd` cannot be made from what is stored: ZeroDivisionError:")


def test_a_subclass_of_a_registered_class_is_not_registered_by_itself():
    with pytest.raises(Unencodable) as caught:
        encode(examples.Unregistered(1))
    assert str(caught.value) == (
        "a tests.marin_dsl.encoding.examples.Unregistered has no encoding yet; put `@encodable` above the class "
        "Unregistered"
    )


def test_a_named_tuple_with_defaults_comes_back_when_a_field_was_added():
    @encodable(name="tests:Rising")
    class Before(NamedTuple):
        x: int

    data = encode(Before(1))
    registry._BY_NAME.clear()

    @encodable(name="tests:Rising")
    class After(NamedTuple):
        x: int
        y: int = 5

    assert decode(data) == After(1, 5)


SCRIPT = """
import enum
import attrs
from marin_dsl import encodable
from marin_dsl.encoding import decode, encode

@encodable
@attrs.frozen
class Shape:
    x: int

class Kind(enum.Enum):
    A = 1

def show():
    value = [Shape(1), Kind.A]
    assert decode(encode(value)) == value
    print(encode(value).hex())

if __name__ == "__main__":
    show()
"""


def test_a_class_of_a_script_has_the_name_it_has_when_the_script_is_imported(tmp_path):
    package = tmp_path / "users_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "shapes.py").write_text(SCRIPT)
    ways = (
        ["users_package/shapes.py"],
        ["-m", "users_package.shapes"],
        ["-c", "import users_package.shapes as s; s.show()"],
    )
    places = [*(os.path.abspath(place) for place in sys.path), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    shown = {
        subprocess.run(
            [sys.executable, *way], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout
        for way in ways
    }
    assert len(shown) == 1
    assert b"users_package.shapes:Shape" in bytes.fromhex(shown.pop())
