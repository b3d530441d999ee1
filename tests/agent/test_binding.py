"""Parameters filled from messages, their schemas, and errors that name the field."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from tests.agent.drive import field_of, parts, refusal, send, state, text
from trunkline import Agent, Misuse, SyncTurn, Turn
from trunkline.agent.binding import bind, refuse_unknown


@dataclass
class Order:
    item: str
    count: int = 1
    tags: list[str] = field(default_factory=list[str])


class Place(msgspec.Struct):
    city: str
    zip_code: int = msgspec.field(name="zip", default=0)


class Query(TypedDict):
    words: list[str]
    limit: int


class Booking(pydantic.BaseModel):
    nights: int = pydantic.Field(ge=1)
    room: Literal["single", "double"] = "single"


def order(turn: Turn, order: Order) -> dict[str, Any]:
    return {"got": [order.item, order.count, order.tags], "type": type(order).__name__}


def place(place: Place) -> list[Any]:
    return [place.city, place.zip_code]


def query(query: Query) -> list[Any]:
    return [query["words"], query["limit"]]


def booking(booking: Booking) -> list[Any]:
    return [booking.nights, booking.room]


@dataclass
class Trip:
    to: Order
    via: list[Order] = field(default_factory=list[Order])


def trip(trip: Trip) -> list[Any]:
    return [trip.to.item, [one.count for one in trip.via]]


class Even(pydantic.BaseModel):
    numbers: list[int]

    @pydantic.field_validator("numbers")
    @classmethod
    def check(cls, numbers: list[int]) -> list[int]:
        if any(number % 2 for number in numbers):
            raise ValueError("an odd one")
        return numbers


def even(even: Even) -> int:
    return len(even.numbers)


def plain(a: int, b: int = 2, note: str | None = None) -> list[Any]:
    return [a, b, note]


def mixed(n: int = 7, *, turn: Turn, word: str) -> list[Any]:
    return [n, word, turn.skill]


def one_number(n: int) -> int:
    return n


def agent_with(function: Callable[..., object]) -> Agent:
    agent = Agent("under test")
    agent.skill(function)
    return agent


def data(value: Any) -> list[dict[str, Any]]:
    return [{"data": value}]


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (order, {"item": "tea", "count": 3, "tags": ["hot"]}, {"got": ["tea", 3, ["hot"]], "type": "Order"}),
        (order, {"item": "tea"}, {"got": ["tea", 1, []], "type": "Order"}),
        (place, {"city": "Oslo", "zip": 150}, ["Oslo", 150]),
        (query, {"words": ["a"], "limit": 3}, [["a"], 3]),
        (booking, {"nights": 2, "room": "double"}, [2, "double"]),
        (trip, {"to": {"item": "Oslo"}, "via": [{"item": "Lund", "count": 2}]}, ["Oslo", [2]]),
        (even, {"numbers": [2, 4]}, 2),
        (plain, {"a": 1}, [1, 2, None]),
        (plain, {"a": 1, "b": 5, "note": "x"}, [1, 5, "x"]),
        (mixed, {"word": "w"}, [7, "w", "mixed"]),
        (one_number, {"n": 4}, 4),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)[:30]),
)
def test_a_data_part_fills_the_parameters(function: Callable[..., object], given: Any, expected: Any) -> None:
    task = send(agent_with(function), data(given))
    assert state(task) == "completed"
    assert parts(task) == [{"data": expected}]


@pytest.mark.parametrize(
    ("function", "given", "at", "told"),
    [
        (order, {"count": 3}, "message.parts[0].data", "item"),
        (order, {"item": "tea", "count": "three"}, "message.parts[0].data.count", "int"),
        (order, {"item": "tea", "tags": ["a", 1]}, "message.parts[0].data.tags[1]", "str"),
        (place, {"city": 5}, "message.parts[0].data.city", "str"),
        (query, {"words": "a", "limit": 3}, "message.parts[0].data.words", "array"),
        (query, {"words": []}, "message.parts[0].data", "limit"),
        (booking, {"nights": 0}, "message.parts[0].data.nights", "greater than or equal to 1"),
        (booking, {"nights": 1, "room": "suite"}, "message.parts[0].data.room", "single"),
        (trip, {"to": {"item": "a"}, "via": [{"item": "b"}, {}]}, "message.parts[0].data.via[1]", "item"),
        (even, {"numbers": [2, 3]}, "message.parts[0].data.numbers", "an odd one"),
        (even, {"numbers": [2, "x"]}, "message.parts[0].data.numbers[1]", "integer"),
        (plain, {}, "message.parts[0].data", "a"),
        (plain, {"a": 1, "b": None}, "message.parts[0].data.b", "int"),
        (plain, [1, 2], "message.parts[0].data", "object"),
        (plain, None, "message.parts[0].data", "object"),
        (one_number, 4, "message.parts[0].data", "object"),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)[:30]),
)
def test_what_does_not_fit_names_the_field(
    function: Callable[..., object], given: Any, at: str, told: str
) -> None:
    error = refusal(agent_with(function), data(given))
    assert error["code"] == -32602
    assert field_of(error) == at
    assert told in error["message"]


def test_the_data_part_is_found_among_others() -> None:
    content = [{"text": "please"}, {"data": {"a": 1}}]
    agent = Agent("under test")
    agent.skill(input_modes=["text/plain", "application/json"])(plain)
    assert parts(send(agent, content)) == [{"data": [1, 2, None]}]
    error = refusal(agent, [{"text": "please"}, {"data": {"a": "one"}}])
    assert field_of(error) == "message.parts[1].data.a"


class Hotel(pydantic.BaseModel):
    name: str = pydantic.Field(validation_alias=pydantic.AliasChoices("name", "title"))
    stars: int = 3


class OpenHotel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="ignore")
    name: str


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    tricks: int = 0


def hotel(hotel: Hotel) -> list[Any]:
    return [hotel.name, hotel.stars]


def open_hotel(hotel: OpenHotel) -> str:
    return hotel.name


def kennel(pet: Cat | Dog, by_name: dict[str, Cat] = {}, spare: Order | None = None) -> str:  # noqa: B006
    return type(pet).__name__


def weather(city: str, days: int = 1) -> str:
    return f"{city} {days}"


def open_weather(city: str, days: int = 1, **rest: float) -> dict[str, Any]:
    return {"city": city, "days": days, "rest": rest}


def open_order(order: Order, **rest: Any) -> dict[str, Any]:
    return {"item": order.item, "rest": rest}


@pytest.mark.parametrize(
    ("function", "given", "at", "told"),
    [
        (weather, {"city": "Rome", "dys": 3}, ".dys", "unknown parameter 'dys'; did you mean 'days'?"),
        (weather, {"city": "Rome", "unit": "C"}, ".unit", "unknown parameter 'unit'; there are city, days"),
        (order, {"item": "tea", "cuont": 2}, ".cuont", "did you mean 'count'?"),
        (place, {"city": "Oslo", "zip_code": 1}, ".zip_code", "there are city, zip"),
        (query, {"words": [], "limit": 1, "limits": 2}, ".limits", "did you mean 'limit'?"),
        (booking, {"nights": 1, "rooom": "double"}, ".rooom", "did you mean 'room'?"),
        (trip, {"to": {"item": "a", "cout": 1}}, ".to.cout", "did you mean 'count'?"),
        (
            trip,
            {"to": {"item": "a"}, "via": [{"item": "b", "tag": []}]},
            ".via[0].tag",
            "did you mean 'tags'?",
        ),
        (kennel, {"pet": {"type": "Cat", "live": 1}}, ".pet.live", "did you mean 'lives'?"),
        (kennel, {"pet": {"type": "Dog"}, "by_name": {"a": {"live": 1}}}, ".by_name.a.live", "lives"),
        (kennel, {"pet": {"type": "Dog"}, "spare": {"item": "x", "count_": 1}}, ".spare.count_", "count"),
        (open_weather, {"city": "Rome", "wind": "no"}, ".wind", "expected number, got string"),
        (open_order, {"item": "tea", "count": "x"}, ".count", "expected integer, got string"),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)[:30]),
)
def test_a_misspelt_name_is_refused_with_the_nearest(
    function: Callable[..., object], given: Any, at: str, told: str
) -> None:
    error = refusal(agent_with(function), data(given))
    assert error["code"] == -32602
    assert told in error["message"]
    assert field_of(error) in ("message.parts[0].data" + at, "message.parts[0].data[...]"), error


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (hotel, {"title": "Ritz"}, ["Ritz", 3]),
        (open_hotel, {"name": "Ritz", "pool": True}, "Ritz"),
        (kennel, {"pet": {"type": "Dog", "tricks": 1}, "spare": None}, "Dog"),
        (open_weather, {"city": "Rome", "wind": 3.5}, {"city": "Rome", "days": 1, "rest": {"wind": 3.5}}),
        (open_order, {"item": "tea", "order": "7"}, {"item": "tea", "rest": {}}),
        (open_order, {"item": "tea", "sugar": 2}, {"item": "tea", "rest": {"sugar": 2}}),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)[:30]),
)
def test_an_author_may_take_other_names(function: Callable[..., object], given: Any, expected: Any) -> None:
    task = send(agent_with(function), data(given))
    assert parts(task) == [{"text": expected} if isinstance(expected, str) else {"data": expected}]


def test_a_schema_is_closed_unless_its_author_opens_it() -> None:
    for function in (weather, order, place, query, booking, trip, hotel):
        assert (bind(function).schema or {})["additionalProperties"] is False
    assert (bind(trip).schema or {})["$defs"]["Order"]["additionalProperties"] is False
    for function in (open_weather, open_order):
        assert (bind(function).schema or {})["additionalProperties"] is True
    assert "additionalProperties" not in (bind(open_hotel).schema or {})


def test_the_only_skill_that_reads_data_says_what_is_wrong_with_it() -> None:
    agent = Agent("under test")
    agent.skill(lambda text: text, id="say")
    agent.skill(weather)
    assert "did you mean 'days'?" in refusal(agent, data({"city": "Rome", "dys": 3}))["message"]
    assert text(send(agent, data({"city": "Rome"}))) == "Rome 1"


@pytest.mark.parametrize(
    ("function", "expected"),
    [(weather, "Rome 1"), (hotel, ["Rome", 3]), (order, {"got": ["Rome", 1, []], "type": "Order"})],
    ids=["parameters", "pydantic", "dataclass"],
)
def test_text_fills_the_one_required_string(function: Callable[..., object], expected: Any) -> None:
    task = send(agent_with(function), "Rome")
    assert parts(task) == [{"text": expected} if isinstance(expected, str) else {"data": expected}]


def test_text_that_fills_a_string_is_beside_data_only_text() -> None:
    agent = agent_with(weather)
    assert agent.skills["weather"].input_modes == ("application/json", "text/plain")
    assert text(send(agent, [{"text": "please"}, {"data": {"city": "Oslo", "days": 2}}])) == "Oslo 2"


def test_two_required_strings_are_not_guessed_from_text() -> None:
    def both(a: str, b: str) -> str:
        return a + b

    def optional(a: str = "x", b: str = "y") -> str:
        return a + b

    for function in (both, optional, plain):
        assert field_of(refusal(agent_with(function), "just text")) == "message.parts"


def test_no_data_part_says_what_is_wanted() -> None:
    error = refusal(agent_with(plain), "just text")
    assert error["code"] == -32602
    assert field_of(error) == "message.parts"
    assert "a, b, note" in error["message"]


def test_text_fills_a_single_string() -> None:
    assert text(send(agent_with(lambda text: f"<{text}>"), "hi")) == "<hi>"

    def greet(name: str, turn: SyncTurn) -> str:
        return f"{turn.task_id != ''} {name}"

    assert text(send(agent_with(greet), "hi")) == "True hi"


def test_a_turn_is_known_by_its_name_or_type() -> None:
    async def by_name(turn) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
        return turn.text

    async def by_type(t: Turn) -> str:
        return t.text

    async def neither() -> str:
        return "nothing"

    for function, expected in ((by_name, "hi"), (by_type, "hi"), (neither, "nothing")):
        assert text(send(agent_with(function), "hi")) == expected


@pytest.mark.parametrize(
    ("function", "required", "names"),
    [
        (order, ["item"], {"item", "count", "tags"}),
        (place, ["city"], {"city", "zip"}),
        (query, ["limit", "words"], {"words", "limit"}),
        (booking, ["nights"], {"nights", "room"}),
        (trip, ["to"], {"to", "via"}),
        (plain, ["a"], {"a", "b", "note"}),
        (mixed, ["word"], {"n", "word"}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_schema(function: Callable[..., object], required: list[str], names: set[str]) -> None:
    schema = bind(function).schema
    assert schema is not None
    assert schema["type"] == "object"
    assert sorted(schema["required"]) == required  # type: ignore[call-overload]
    assert set(schema["properties"]) == names  # type: ignore[call-overload]


def test_plain_functions_have_no_schema() -> None:
    assert bind(lambda text: text).schema is None
    assert bind(lambda turn: turn).model is None


def star(*words: str) -> None: ...


def positional(a: str, b: int, /) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def complex_one(a: complex, b: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (star, "star: parameters must be named; *words"),
        (positional, "positional: parameters must be named; a"),
        (unknown, "unknown: annotation not found: name 'Nowhere'"),
        (complex_one, "complex_one: no JSON schema"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_misuse_says_which_function_and_why(function: Callable[..., object], told: str) -> None:
    with pytest.raises(Misuse) as caught:
        agent_with(function)
    assert told in str(caught.value)


class Shelves(pydantic.BaseModel):
    books: dict[str, list[int]]


def shelves(shelves: Shelves) -> int:
    return len(shelves.books)


def boxes(books: dict[str, list[int]]) -> int:
    return len(books)


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        (shelves, {"books": {"a": ["x"] * 101}}, "101 members do not fit"),
        (shelves, {"books": {"a" * 90_000: ["x"] * 400}}, "too long for so many"),
        (boxes, {"books": {}, "b" * 90_000: 1}, "unknown parameter 'bbb"),
    ],
    ids=["faults", "paths", "name"],
)
def test_a_refusal_is_bounded(function: Callable[..., object], given: Any, told: str) -> None:
    error = refusal(agent_with(function), data(given))
    assert told in error["message"]
    assert len(field_of(error)) < 1100


def test_numbers_are_not_looked_into_for_names() -> None:
    schema = bind(boxes).schema or {}
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        refuse_unknown({"books": {"a" * 1000: [1] * 1000}}, schema, dict, "data")
    finally:
        sys.setprofile(None)
    assert calls < 100


def test_class_is_refused_and_method_is_a_skill() -> None:
    class Converter:
        """Converts."""

        def double(self, number: int) -> int:
            """Double a number."""
            return 2 * number

    agent = Agent("Converter")
    with pytest.raises(Misuse, match="Converter is a class; a skill is a function, or a method of an object"):
        agent.skill(Converter)
    agent.skill(Converter().double)
    assert [*agent.skills] == ["double"]
