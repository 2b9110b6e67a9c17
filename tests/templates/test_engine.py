"""The engine against the rules of Go's text/template. Every expected text here is what Go itself writes."""

from __future__ import annotations

import datetime
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_ollama.templates import Template, TemplateError
from trio_ollama.templates.evaluate import Limits

VALUES: dict[str, Any] = {
    "s": "hé",
    "n": 3,
    "f": 1.5,
    "t": True,
    "L": [1, "a", None, 2.5, [True]],
    "E": [],
    "M": {"b": 1, "a": "x", "z": None},
    "R": [{"r": "u", "c": "hi"}, {"r": "a", "c": ""}],
}


def rendered(text: str, values: dict[str, Any] = VALUES) -> str:
    return Template.parse(text).render(values)


RENDERED: Final[tuple[tuple[str, str], ...]] = (
    # Text and trimming.
    ("", ""),
    ("a\r\n b", "a\r\n b"),
    ("a {{- .n -}} \n b", "a3b"),
    ("{{.n \t\n -}} b", "3b"),
    ("a {{- 3}}", "a3"),
    ("a {{-3}}", "a -3"),
    ("a\u00a0{{- .n}}", "a\u00a03"),
    ("{{.n -}}\t\r\n {{- .n}}", "33"),
    ("}} {{.n}} }", "}} 3 }"),
    ("{ {{.n}}}", "{ 3}"),
    # Comments.
    ("a {{/* b */}} c", "a  c"),
    ("a {{- /* {{b}} \n */ -}} c", "ac"),
    # Constants.
    ('{{"}}"}}{{`raw\n\\n`}}{{"a\\x41\\u00e9\\t\\101\\""}}', '}}raw\n\\naAé\tA"'),
    ("{{'a'}} {{'\\n'}} {{0x10}} {{0b11}} {{017}} {{0o17}} {{1_000}} {{-5}} {{+5}}", "97 10 16 3 15 15 1000 -5 5"),
    ("{{1e3}} {{1.0}} {{.5}} {{1.}} {{1e6}}", "1000 1 0.5 1 1e+06"),
    ("{{123456789.5}} {{0.0001}} {{1e-5}}", "1.234567895e+08 0.0001 1e-05"),
    ("{{true}} {{false}}", "true false"),
    # Printing.
    ("{{.L}}{{.M}}{{.E}}", "[1 a <nil> 2.5 [true]]map[a:x b:1 z:<nil>][]"),
    ("{{.none}}{{.M.none}}{{.M.z}}{{index .L 2}}", "<no value>" * 4),
    ("{{.R}}", "[map[c:hi r:u] map[c: r:a]]"),
    # Fields, variables, parentheses.
    ("{{.M.a}}{{(.M).a}}{{$.M.a}}{{($).M.a}}{{(index .R 0).c}}{{(.none).x}}", "xxxxhi<no value>"),
    ("{{$x := .n}}{{$x}}{{$x = 4}}{{$x}}", "34"),
    ("{{$x := 1}}{{if true}}{{$x = 2}}{{$x := 3}}{{$x}}{{end}}{{$x}}", "32"),
    ("{{$x := .M}}{{$x.a}}{{with .R}}{{$x.b}}{{$.n}}{{end}}", "x13"),
    ('{{"b" | printf "%s-%s" "a"}}{{.n | print 1 | print 2}}', "a-b21 3"),
    ("{{.n |}}", "3"),
    # if, with and truth.
    ("{{if .none}}a{{else}}b{{end}}{{if .E}}a{{else}}b{{end}}{{if 0}}a{{else}}b{{end}}", "bbb"),
    ('{{if ""}}a{{else if 0.0}}b{{else if .t}}c{{else}}d{{end}}', "c"),
    ("{{if .x}}a{{else}}if{{end}}", "if"),
    ("{{with .M}}{{.a}}{{end}}{{with .E}}a{{else}}{{.n}}{{end}}", "x3"),
    ("{{with .none}}a{{else with .s}}{{.}}{{end}}", "hé"),
    ("{{with $y := .n}}{{$y}}{{.}}{{end}}", "33"),
    # range.
    ("{{range .L}}<{{.}}>{{end}}", "<1><a><<no value>><2.5><[true]>"),
    ("{{range $e := .L}}{{$e}}{{end}}{{range $i, $e := .R}}{{$i}}{{$e.r}}{{end}}", "1a<no value>2.5[true]0u1a"),
    ("{{range .M}}{{.}},{{end}}", "x,1,<no value>,"),
    ("{{range $k, $v := .M}}{{$k}}={{$v}},{{end}}", "a=x,b=1,z=<no value>,"),
    ("{{range 3}}{{.}}{{end}}{{range 0}}a{{else}}b{{end}}{{range -2}}a{{else}}b{{end}}", "012bb"),
    ("{{range .none}}a{{else}}b{{end}}{{range $x := .E}}a{{else}}{{$x}}{{end}}", "b[]"),
    ("{{range $i, $e := .L}}{{if eq $i 1}}{{continue}}{{end}}{{if eq $i 3}}{{break}}{{end}}{{$i}}{{end}}", "02"),
    ("{{$x := 0}}{{range $x = .R}}{{end}}{{$x.r}}", "a"),
    ("{{range 2}}{{range 2}}{{break}}{{end}}{{.}}{{end}}", "01"),
    # define, template, block.
    ('{{define "a"}}[{{.}}{{$}}]{{end}}{{template "a" .n}}{{template "a"}}', "[33][<no value><no value>]"),
    ('{{block "b" .f}}<{{.}}>{{end}}{{template "b" 1}}', "<1.5><1>"),
    ("{{template `a` .n}}{{define `a`}}{{if .}}.{{end}}{{end}}", "."),
    ('{{define "a"}} {{end}}{{define "a"}}x{{end}}{{define "a"}}{{end}}{{template "a"}}', "x"),
    # and, or, not.
    ("{{and 1 0 .none.x.y}}{{or 0 2 .none.x.y}}{{and 1 2}}{{or 0 false}}", "022false"),
    ("{{0 | or 3}}{{0 | and 3}}{{.none | or}}", "30<no value>"),
    ("{{not .E}}{{not .t}}{{not nil}}", "truefalsetrue"),
    # Comparisons.
    ("{{eq 1 2 1}}{{eq .s `hé`}}{{ne 1 2}}{{lt 1 2}}{{le 2 2}}{{gt `b` `a`}}{{ge 1.5 1.5}}", "true" * 7),
    ("{{eq .none nil}}{{eq .none .other}}{{eq .none `x`}}{{ne .none 1}}", "truetruefalsetrue"),
    # len, index, slice: of strings in bytes.
    ("{{len .s}}{{len .L}}{{len .M}}", "353"),
    ("{{index .s 1}} {{index .M `a`}} {{index .M `no`}} {{index .L 4 0}} {{index .E}}", "195 x <no value> true []"),
    ("{{slice .s 1}}{{slice .s 0 1}}{{slice .L 1 3}}{{slice .R 2}}{{slice .L 0 1 2}}", "éh[a <nil>][][1]"),
    ("{{slice .s 0 2}}", "h\ufffd"),
    # print, println, printf.
    ("{{print 1 2 `a` `b` 3 nil}}{{print}}", "1 2ab3 <nil>"),
    ("{{println 1 `a` .t}}", "1 a true\n"),
    ('{{printf "%d %s %v %q" 1 "a" .L "q\\n"}}', '1 a [1 a <nil> 2.5 [true]] "q\\n"'),
    ('{{printf "%5d|%-5s|%05d|%+d|% d|%t|%%" 3 "ab" -3 3 4 true}}', "    3|ab   |-0003|+3| 4|true|%"),
    ('{{printf "%.2f %6.1f %e %g %.3g" 3.14159 2.5 1e6 1e-7 123456.0}}', "3.14    2.5 1.000000e+06 1e-07 1.23e+05"),
    ('{{printf "%x %X %o %b %c %x %.1s %q" 255 255 8 5 65 "hé" "ab" 97}}', "ff FF 10 101 A 68c3a9 a 'a'"),
    ('{{printf "%d %s" "a" 1}} {{printf "%d"}}', "%!d(string=a) %!s(int=1) %!d(MISSING)"),
    ('{{printf "x" 1 nil}} {{printf "%s" nil}} {{printf "%"}}', "x%!(EXTRA int=1, <nil>) %!s(<nil>) %!(NOVERB)"),
    ('{{printf "%s %5q" .M .t}}', "map[a:x b:%!s(int=1) z:<nil>] %!q(bool= true)"),
    # json.
    ("{{json .L}}{{json .M}}{{json nil}}{{json .E}}", '[1,"a",null,2.5,[true]]{"a":"x","b":1,"z":null}null[]'),
    ('{{json "<a>&é\\"\\\\\\n\\u2028\\x01\\b"}}', '"\\u003ca\\u003e\\u0026é\\"\\\\\\n\\u2028\\u0001\\b"'),
    ("{{json 1.0}} {{json 1e20}} {{json 1e21}}", "1 100000000000000000000 1e+21"),
    ("{{json 1e-6}} {{json 1e-7}} {{json 2.50}}", "0.000001 1e-7 2.5"),
)


@pytest.mark.parametrize(("text", "expected"), RENDERED)
def test_renders_as_go_does(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("{{", 1, "an action is not closed: }} is missing"),
        ("a\n{{.n", 2, "an action is not closed: }} is missing"),
        ("{{/* a", 1, "a comment is not closed"),
        ("{{/* a */ b}}", 1, "a comment ends before its }}"),
        ("{{ /* a */ }}", 1, "unexpected '/' in an action"),
        ('{{"a}}', 1, "a string is not closed"),
        ("{{`a}}", 1, "a raw string is not closed"),
        ("{{(.n}}", 1, "a ( is not closed"),
        ("{{.n)}}", 1, "a ) without its ("),
        ("{{}}", 1, "a value is missing for command"),
        ("{{if}}{{end}}", 1, "a value is missing for if"),
        ("\n{{if .n}}\n", 3, "{{end}} is missing for if"),
        ("{{end}}", 1, "unexpected {{end}}"),
        ("{{else}}", 1, "unexpected {{else}}"),
        ("{{if 1}}{{else}}{{else}}{{end}}", 1, "unexpected {{else}} in if"),
        ("{{range 1}}{{else if 1}}{{end}}", 1, "unexpected {{else if}} in range"),
        ("{{break}}", 1, "{{break}} outside of range"),
        ("{{range 1}}{{else}}{{continue}}{{end}}", 1, "{{continue}} outside of range"),
        ("{{$x}}", 1, "the variable $x is not defined"),
        ("{{if 1}}{{$x := 1}}{{end}}{{$x}}", 1, "the variable $x is not defined"),
        ("{{if $x, $y := 1}}{{end}}", 1, "unexpected , in if"),
        ("{{range $x, $y, $z := .L}}{{end}}", 1, "too many variables in range"),
        ("{{range $x, .L}}{{end}}", 1, "range can only set variables"),
        ("{{none 1}}", 1, "there is no function none"),
        ("{{html .s}}", 1, "the function html is not supported: prompts are not HTML"),
        ("{{call .s}}", 1, "the function call is not supported: there are no functions among the values"),
        ("{{1 | 2}}", 1, "only a function can follow a |"),
        ("{{nil}}", 1, "nil alone is no value"),
        ("{{1.x}}", 1, "1.x is not a number that is understood here"),
        ("{{99999999999999999999}}", 1, "the number 99999999999999999999 is too large"),
        ("{{1i}}", 1, "complex numbers like 1i are not supported"),
        ('{{"\\q"}}', 1, "unknown escape \\q"),
        ('{{"\\xff"}}', 1, "a string with escapes that are no valid UTF-8"),
        ("{{'ab'}}", 1, "'ab' is not one character"),
        ('{{"a".x}}', 1, "unexpected .x: only fields, variables and ( ) have fields"),
        ("{{.n-}}", 1, "unexpected '-' after .n"),
        ("{{.a$}}", 1, "unexpected '$' after .a"),
        ("{{template}}", 1, "unexpected }} in template"),
        ('{{if 1}}{{define "a"}}{{end}}{{end}}', 1, "define stands inside of another block"),
        ('{{define "a"}}x{{end}}{{define "a"}}y{{end}}', 1, 'the template "a" is defined twice'),
        ('{{printf "%p" 1}}', 1, "printf with %p is not supported"),
        ('{{printf "%*d" 1 1}}', 1, "printf with %* is not supported"),
        ('{{printf "%9999d" 1}}', 1, "printf with a width above 1000 is not supported"),
    ],
)
def test_what_is_no_template_is_refused_with_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template.parse(text)
    assert (caught.value.line, caught.value.reason) == (line, reason)
    assert str(caught.value) == f"line {line}: {reason}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n\n{{.none.x}}", "a value of kind nil has no field x"),
        ("{{.s.x}}", "a value of kind string has no field x"),
        ("{{.n 1}}", "only functions take arguments"),
        ("{{1 | .n}}", "only functions take arguments"),
        ("{{len 3}}", "len: a value of kind integer has no length"),
        ("{{len .none}}", "len: a value of kind nil has no length"),
        ("{{len}}", "len does not take 0 arguments"),
        ("{{ne 1 2 3}}", "ne does not take 3 arguments"),
        ("{{and}}", "and does not take 0 arguments"),
        ("{{eq 1 1.0}}", "eq: integer and float cannot be compared"),
        ("{{eq .L .L}}", "eq: two values of kind list cannot be compared"),
        ("{{lt .t .t}}", "lt: a value of kind bool has no order"),
        ("{{index .L 5}}", "index: the index 5 is out of range"),
        ("{{index .L -1}}", "index: the index -1 is out of range"),
        ("{{index .M 1}}", "index: a map has no keys of kind integer"),
        ("{{index nil}}", "index: nil has no elements"),
        ("{{slice .s 2 1}}", "slice: the slice from 2 to 1 is out of range"),
        ("{{slice .s 0 1 2}}", "slice: a string cannot be sliced with three indexes"),
        ("{{printf 1}}", "printf: printf needs a string first, not a value of kind integer"),
        ('{{printf .s | printf "%%%s" | printf}}', "printf: printf with %h is not supported"),
        ("{{range .s}}{{end}}", "range cannot go over a value of kind string"),
        ("{{range .t}}{{end}}", "range cannot go over a value of kind bool"),
        ("{{range $i, $e := 3}}{{end}}", "range over a number sets one variable only"),
        ('{{template "a"}}', 'the template "a" is not defined'),
        ("{{$x = 1}}", "the variable $x is not defined"),
        ("{{or 1 ($x := 2)}}{{$x}}", "the variable $x is not defined"),
    ],
)
def test_what_go_cannot_execute_fails_with_a_reason(text: str, reason: str) -> None:
    template = Template.parse(text)
    with pytest.raises(TemplateError) as caught:
        template.render(VALUES)
    assert caught.value.reason == reason
    assert caught.value.line == text.count("\n") + 1


def test_dates_are_those_of_the_day_given() -> None:
    template = Template.parse('{{ currentDate }} {{ yesterdayDate "any format" }}')
    assert template.render({}, today=datetime.date(2026, 3, 1)) == "2026-03-01 2026-02-28"
    assert Template.parse("{{ currentDate }}").render({}) in (
        str(datetime.date.today()),
        str(datetime.date.today() - datetime.timedelta(days=1)),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{range 1000000000}}{{end}}", "the template does more than 250000 steps"),
        ("{{range 100000}}{{range 100000}}{{end}}{{end}}", "the template does more than 250000 steps"),
        ('{{define "a"}}{{template "a"}}{{end}}{{template "a"}}', "the template goes more than 96 levels deep"),
        (
            "{{$x := `aaaaaaaaaaaaaaaa`}}{{range 40}}{{$x = print $x $x}}{{end}}",
            "the template's functions handle more than 16777216 characters",
        ),
        ("{{range 100000}}{{len $.text}}{{end}}", "the template's functions handle more than 16777216 characters"),
        (
            '{{range 100000}}{{$x := printf "%1000d" 1}}{{end}}',
            "the template's functions handle more than 16777216 characters",
        ),
        ("{{range 1000000}}{{$x := json $}}{{end}}", "the template's functions handle more than 16777216 characters"),
    ],
)
def test_a_template_that_never_ends_is_stopped(text: str, reason: str) -> None:
    template = Template.parse(text)
    with pytest.raises(TemplateError) as caught:
        template.render({"text": "x" * 1000})
    assert caught.value.reason == reason


def test_limits_are_exact() -> None:
    template = Template.parse("{{range 10}}abc{{end}}")
    assert template.render({}, limits=Limits(output=30)) == "abc" * 10
    with pytest.raises(TemplateError, match="the prompt has more than 29 characters"):
        template.render({}, limits=Limits(output=29))
    with pytest.raises(TemplateError, match="more than 48 levels inside one another"):
        Template.parse("{{if 1}}" * 49 + "{{end}}" * 49)
    with pytest.raises(TemplateError, match="more than 48 levels inside one another"):
        Template.parse("{{" + "(" * 49 + "1" + ")" * 49 + "}}")
    with pytest.raises(TemplateError, match="has more than 1048576 characters"):
        Template.parse("x" * ((1 << 20) + 1))
    assert Template.parse("{{if 1}}" * 48 + "x" + "{{end}}" * 48).render({}) == "x"
    assert Template.parse("{{" + "(" * 48 + "1" + ")" * 48 + "}}").render({}) == "1"
    assert Template.parse("{{if 0}}a" + "{{else if 0}}b" * 46 + "{{else}}c{{end}}").render({}) == "c"


def test_values_nested_beyond_reason_are_an_error() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for text in ("{{.}}", "{{json .}}", "{{print .}}"):
        template = Template.parse(f"{{{{with .deep}}}}{text}{{{{end}}}}")
        with pytest.raises(TemplateError, match="nested too deeply"):
            template.render({"deep": deep})
    while deep:  # taking it apart all at once would be as deep
        (deep,) = deep


BLANK = st.text(" \t\r\n", max_size=4)
WORD = st.text("abé\u00a0}-", min_size=1, max_size=4)


@given(BLANK, WORD, BLANK, st.booleans(), st.booleans(), BLANK, WORD, BLANK)
def test_markers_trim_all_blanks_on_their_side_and_nothing_else(
    blank1: str, word1: str, blank2: str, left: bool, right: bool, blank3: str, word2: str, blank4: str
) -> None:
    text = f"{blank1}{word1}{blank2}{'{{- ' if left else '{{'}.n{' -}}' if right else '}}'}{blank3}{word2}{blank4}"
    before = blank1 + word1 + ("" if left else blank2)
    after = ("" if right else blank3) + word2 + blank4
    assert rendered(text) == f"{before}3{after}"


SCRAPS = st.sampled_from(
    [
        *("{{", "}}", "{{- ", " -}}", "{{end}}", "{{else}}", "{{if ", "{{with ", "{{range ", "{{/*", "*/}}", "(", ")"),
        *(
            ".",
            ".s",
            ".L",
            ".M.a",
            ".none",
            "$",
            "$x",
            "$x := ",
            "$x = ",
            ", ",
            " | ",
            " ",
            "1",
            "-1",
            "1.5",
            '"a"',
            "`",
        ),
        *("'a'", "nil", "true", "and ", "or ", "eq ", "len ", "index ", "slice ", "json ", 'printf "%v" ', "print "),
        *('{{template "a" .}}', '{{define "a"}}', '{{block "b" .}}', "{{break}}", "{{continue}}", "text", "\n", "é"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(SCRAPS, max_size=25).map("".join)))
def test_no_text_makes_it_hang_or_fail_otherwise(text: str) -> None:
    try:
        template = Template.parse(text)
        first = template.render(VALUES, limits=Limits(steps=2000, output=20_000))
    except TemplateError:
        return
    assert template.render(VALUES, limits=Limits(steps=2000, output=20_000)) == first
