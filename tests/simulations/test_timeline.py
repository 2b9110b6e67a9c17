"""`python -m simulations timeline`: what a picture shows, of our scheduler and of another one."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulations.__main__ import main
from simulations.picture.axis import Axis
from simulations.picture.canvas import WIDTH
from simulations.picture.picture import draw
from simulations.picture.requests import FEW, MOST
from simulations.picture.story import Course, End, Kind, Mark, Phase, RequestLane, RunnerLane, Stage, Story
from simulations.scenarios.history import History
from simulations.scenarios.run import Run
from simulations.scenarios.scenario import Fault, Request, Scenario, What
from simulations.scenarios.seeds import Spot, find
from simulations.verbs.timeline import picture
from trio_ollama.scheduler import Policy

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"python -m simulations (timeline [^`\n]*-o docs/images/(\S+\.svg))")
ANEW = "not what the tool makes now (seeds, rules or looks have changed): make it anew, the docs say how"

SWAP = Spot(
    "swap",
    Scenario(
        models={"x": 14, "b": 14},
        requests=(
            Request(model="x", tokens=20, pause=0.2),
            Request(model="b", at=4),
            Request(model="b", at=4.5, leaves=5),
            Request(model="x", at=5, tokens=0, keep_alive=400),
        ),
        faults=(Fault(at=20, what=What.CRASH, target="x"), Fault(at=20, what=What.CRASH, target="x")),
    ),
)
"""x is busy, b needs its memory, x comes back, and crashes."""


def played(spot: Spot) -> tuple[Run, Story]:
    history = History()
    run = spot.play(interfere=history.begin, instruments=[history])
    return run, history.story(run, heading="ours", problems=run.broken)


def titles(svg: str, what: str) -> list[str]:
    """The tooltips of all lanes of a kind."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [group.findtext(f"{SVG}title") or "" for group in groups if what in group.get("class", "").split()]


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


# -- the story of a run ---------------------------------------------------------------------------------------------


def test_looking_changes_nothing() -> None:
    for text in ("17", "23", "46"):
        assert played(find(text))[0].digest == find(text).play().digest


def test_requests_and_runners_go_through_their_stages() -> None:
    run, story = played(SWAP)
    assert not run.broken
    x, b, left, again = story.requests
    assert [stage for *_, stage in x.stages.spans()] == [Stage.LOADING, Stage.PROMPT, Stage.RUNNING]
    assert [stage for *_, stage in b.stages.spans()][:2] == [Stage.EVICTING, Stage.LOADING]
    assert (left.end, left.ended) == (End.CANCELLED, 5)
    assert again.end is End.ANSWERED
    assert sum(until - since for since, until, _ in b.stages.spans()) == pytest.approx(b.ended - 4)
    first, second, third = story.runners
    phases = [phase for *_, phase in first.phases.spans()]
    assert phases == [Phase.LOADING, Phase.READY, Phase.CLAIMED, Phase.STOPPING]
    claimed = next(since for since, _, phase in first.phases.spans() if phase is Phase.CLAIMED)
    assert claimed == 4
    kinds = [[mark.kind for mark in lane.marks] for lane in story.runners]
    assert kinds == [[Kind.LOAD, Kind.EVICT], [Kind.LOAD, Kind.EVICT], [Kind.LOAD, Kind.CRASH]]
    assert "its memory is needed" in first.marks[1].text
    assert [lane.model for lane in (first, second, third)] == ["x", "b", "x"]


def test_bytes_are_there_while_a_process_has_them() -> None:
    run, story = played(SWAP)
    for process, held in zip(run.processes, story.holdings, strict=True):
        ((since, until, amount),) = held.amount.spans()
        assert amount == 14 << 30
        assert process.started_at < since < (process.loaded_at or 0)
        assert until == process.ended_at
    reserved = story.reserved["GPU-0"]
    assert reserved.at(0.5) == reserved.at(3) == 14 << 30


def test_trouble_is_told_but_not_the_end_of_what_never_began() -> None:
    faults = (
        Fault(at=1, what=What.LAG, amount=0),
        Fault(at=2, what=What.QUERIES_FAIL),
        Fault(at=3, what=What.QUERIES_FAIL, amount=0),
        Fault(at=9, what=What.LAG, amount=0),
    )
    _, story = played(Spot("told", Scenario(requests=(Request(),), faults=faults)))
    told = [(mark.at, mark.text) for mark in story.faults]
    assert told == [(2, "the GPUs cannot be asked"), (3, "the GPUs can be asked again"), (9, "all is well again")]
    assert story.until < 4


def test_a_story_ends_when_nothing_of_interest_follows() -> None:
    run, story = played(SWAP)
    assert 20 <= story.until < 25 < run.seconds


# -- another scheduler ----------------------------------------------------------------------------------------------


def test_both_stand_above_each_other_and_who_waits_for_ever_is_named() -> None:
    svg = picture(find("R38-b"), ("control", "ours"))
    said = words(svg)
    assert said.index("Control: a model of Ollama's scheduler") < said.index("trio-ollama")
    assert any(text.startswith("Look at client 2 (b), client 5 (c): they wait for ever") for text in said)
    assert said.count("waits for ever") == 2
    lanes = titles(svg, "request")
    assert len(lanes) == 10
    assert ["waits for ever" in lane for lane in lanes] == [number in (1, 4) for number in range(10)]
    assert any(text.startswith("Every request ends (5 answered)") for text in said)


def test_a_scheduler_is_drawn_as_far_as_it_can_be_seen() -> None:
    svg = picture(find("R38"), ("control",))
    x, *_ = titles(svg, "runner")
    assert re.match(r"x, pid 1000: loading at 0\.00 s, ready at 2\.0\d s, stopping at \d+\.\d\d s, gone at ", x)
    assert "SIGKILL" in x or "SIGTERM" in x
    assert "control: marks" in svg
    assert any(re.fullmatch(r"… (29\d|300) s …", text) for text in words(svg))  # of keep-alive


def test_what_is_known_of_an_older_scheduler_is_drawn_on_that_one() -> None:
    assert "Control: a model of an older scheduler of Ollama" in words(picture(find("R05"), ("control",)))
    assert "trio-ollama" in words(picture(find("R05")))


# -- the picture ----------------------------------------------------------------------------------------------------


def test_every_runner_and_request_has_a_lane(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seed.svg"
    assert main(["timeline", "211", "-o", str(file)]) == 0
    assert "211 on ours" in capsys.readouterr().out
    svg = file.read_text(encoding="utf-8")
    run, story = played(find("211"))
    shown = [lane for lane in story.runners if lane.phases.changes[0][0] < story.until]
    assert len(shown) > 1
    assert sorted(title.partition(":")[0] for title in titles(svg, "runner")) == sorted(lane.name for lane in shown)
    assert len(titles(svg, "request")) == len(run.clients) > FEW
    assert len(svg) < 100_000


def test_nothing_is_outside_the_page() -> None:
    for text in ("12", "31", "95", "119"):
        svg = ElementTree.fromstring(picture(find(text)))
        height = float(svg.get("height", "0"))
        for rect in svg.iter(f"{SVG}rect"):
            x, y = float(rect.get("x", "0")), float(rect.get("y", "0"))
            assert 0 <= x <= x + float(rect.get("width", "0")) <= WIDTH
            assert 0 <= y <= height
        for polygon in svg.iter(f"{SVG}polygon"):
            ys = [float(point.split(",")[1]) for point in polygon.get("points", "").split()]
            assert min(ys) > -20  # signs of the legend count from their own place
            assert max(ys) <= height


def test_a_picture_ends_where_it_is_told_to(tmp_path: Path) -> None:
    file = tmp_path / "part.svg"
    assert main(["timeline", "R38", "-o", str(file), "--until", "5"]) == 0
    runners = titles(file.read_text(encoding="utf-8"), "runner")
    assert [title.partition(":")[0] for title in runners] == ["x #1", "c #2"]


def test_a_picture_may_go_on_to_the_end_of_keep_alive() -> None:
    svg = picture(SWAP, until=430)
    assert any(re.fullmatch(r"… \d+ s …", text) for text in words(svg))


def test_what_is_wrong_stands_at_the_top() -> None:
    history = History()
    run = SWAP.play(interfere=history.begin, instruments=[history])
    svg = draw("swap", [history.story(run, heading="ours", problems=["I05: made up", "I06: too", "I07: too"])])
    assert "I05: made up; I06: too; and 1 more." in words(svg)


def test_too_many_requests_are_chosen_from() -> None:
    requests = tuple(Request(model="x", at=number / 10, leaves=9 if number == 59 else None) for number in range(60))
    spot = Spot("many", Scenario(models={"x": 4}, requests=requests, policy=Policy(num_parallel=2)))
    svg = picture(spot)
    lanes = titles(svg, "request")
    assert len(lanes) == MOST
    assert any(text.startswith(f"and {60 - MOST} more: ") for text in words(svg))


# -- its parts ------------------------------------------------------------------------------------------------------


def test_a_course_forgets_what_held_for_no_time() -> None:
    course = Course[str]()
    for at, what in ((0, "a"), (1, "b"), (1, "c"), (2, "c"), (3, None), (4, "d")):
        course.note(at, what)
    assert list(course.spans(5)) == [(0, 1, "a"), (1, 3, "c"), (4, 5, "d")]
    assert (course.at(0.5), course.at(3.5), course.at(-1)) == ("a", None, None)
    course.note(4, None)
    assert course.changes[-1] == (3, None)


def test_the_axis_leaves_out_idle_stretches() -> None:
    axis = Axis([1, 2, 3, 303, 305, 905], end=906, left=100, right=900)
    assert [(cut.since, cut.until) for cut in axis.cuts] == [(3, 303), (305, 905)]
    xs = [axis.x(at) for at in range(907)]
    assert xs[0] == 100
    assert xs[-1] == 900 == axis.x(1e6)
    assert all(before < after for before, after in pairwise(xs))
    assert axis.x(2) - axis.x(1) == pytest.approx(axis.x(304) - axis.x(303))
    places = [x for x, _ in axis.ticks()]
    assert all(after - before >= 45 for before, after in pairwise(places))


def test_the_axis_keeps_what_is_long_because_everything_is() -> None:
    assert not Axis([100, 200, 300], end=400, left=0, right=900).cuts
    assert not Axis([], end=400, left=0, right=900).cuts
    assert not Axis([0.1, 8], end=9, left=0, right=900).cuts


def test_a_story_of_nothing_has_a_picture() -> None:
    lane = RequestLane("client 1", "x", 0.0)
    story = Story("made up", "Nobody comes.", False, {"GPU-0": 1 << 30}, 0.0, requests=[lane])
    story.runners.append(RunnerLane("x #1", "x", marks=[Mark(0.0, Kind.LOAD, "loads")]))
    ElementTree.fromstring(draw("nothing & <nobody>", [story]))


# -- the docs -------------------------------------------------------------------------------------------------------


def commands() -> dict[str, set[str]]:
    """What the docs say about how each of their pictures was made."""
    found: dict[str, set[str]] = {}
    for document in (ROOT / "README.md", ROOT / "docs" / "scheduler.md"):
        for command, name in COMMAND.findall(document.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(command)
    return found


def test_the_docs_say_how_each_picture_is_made() -> None:
    assert sorted(commands()) == sorted(file.name for file in (ROOT / "docs" / "images").iterdir())
    assert all(len(different) == 1 for different in commands().values())


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_pictures_are_what_the_tool_makes(name: str, tmp_path: Path) -> None:
    (command,) = commands()[name]
    assert main(command.replace("docs/images", str(tmp_path)).split()) == 0
    same = (tmp_path / name).read_bytes() == (ROOT / "docs" / "images" / name).read_bytes()
    assert same, ANEW
