"""Small expressions and statements, all rendered with CONTEXT.

Long because it is a list, one case a line, that nobody reads from top to bottom: in several files a case would only be harder to
find."""

CONTEXT = {
    "s": "Hello, Wörld! 東京", "empty": "", "n": 7, "neg": -3, "f": 2.5, "big": 18446744073709551615,
    "yes": True, "no": False, "nil": None,
    "xs": [3, 1, 2], "words": ["b", "A", "c", "B"], "mixed": [1, "a", None, 2.0, [1], {"k": "v"}],
    "d": {"b": 1, "a": 2, "C": 3}, "nested": {"list": [{"k": 1}, {"k": 2}], "items": "shadow"},
    "people": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25, "tags": []},
               {"name": "Bob", "age": 30}],
    "lines": "one\n  two\n\nthree\n", "quotes": "it's \"q\" <b> & \\ \t\x01\x7f", "pad": "  x y  ",
    "matrix": [[1, 2], [3, 4]], "long": "word " * 20, "json": {"z": 1, "a": [1, {"b": None}], "é": "ü\u2028"},
}

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
7 // 2
-7 // 2
7 % -3
-7 % 3
7 / 2
6 / 2
1e3
1_000
0x1f
0b101
0o17
1.5e-7
1e16
123456789.123456789
0.1 + 0.2
1e22
5 // 0
5 % 0
1 / 0
7.5 // 2
-7.5 % 2
2 ** -1
2 ** 0.5
2 ** 100
"a" + "b"
"a" ~ 1 ~ none ~ true ~ 1.0
"a" + 1
1 + "a"
"ab" * 3
3 * "ab"
"ab" * -1
[1] + [2]
[1, 2] * 2
(1,) + (2,)
[1] + (2,)
1 + true
true + true
not true
not not 1
1 and 2
0 and 2
0 or "x"
"" or none
none or false
1 < 2 < 3
1 < 3 < 2
1 == 1.0 == true
"a" < "b"
[1, 2] < [1, 3]
1 < "a"
none < 1
"ell" in s
"x" not in s
1 in xs
9 in xs
"b" in d
"zz" in d
1 in "abc"
missing in xs
"a" in missing
"a" in none
1 if true else 2
1 if false else 2
1 if false
(1 if false) is undefined
"x" if xs and d else "y"
1 if no else 2 if no else 3
s[0]
s[7]
s[-1]
s[100]
s[1:4]
s[::-1]
s[-3:]
s[:-3]
s[::2]
s[5:1]
s[10:2:-2]
xs[0]
xs[-1]
xs[5]
xs[1:]
xs[::-1]
xs[:100]
xs[-100:2]
xs[::0]
xs["a"]
xs[1:2][0]
matrix[1][0]
matrix[1, 0]
d["a"]
d.a
d.zzz
d.zzz.y
d["zzz"] is defined
nested["items"]
nested.list[0].k
nested.list.0.k
missing
missing.x
missing[0]
missing()
missing + 1
missing ~ "a"
missing == missing
missing == none
missing is defined
missing is undefined
none.x
none.x.y
n.x
n.x is defined
s.x
nil
yes
no
[yes, no, nil]
f
[f, n, "a'b", 'q"q', "both'\""]
{"a": 1, 'b': [1, {"c": none}]}
{}
[]
()
(1,)
(1, 2)
1, 2
[1, 2,]
{"a": 1,}
{1: "int", 1.5: "float", true: "bool", none: "none"}
{"a": 1, "a": 2}
{[1]: 2}
"tab\tnl\nq\"b\\u\u00e9\x41\101 \d"
'single \' quote'
"a" "b" 'c'
"{{ not }} {% a %}"
{"a": {"b": 1}}.a.b
[[1, 2], [3]][0][1]
xs | length
s | length
d | length
missing | length
n | length
none | length
xs | count
s | upper
s | lower
s | title
"it's a-test (of title) x_y" | title
"it's a-test x_y".title()
s | capitalize
"ÉCOLE straße" | lower
"école straße" | upper
"ÀB" | capitalize
pad | trim
"xxaxx" | trim("x")
missing | trim
n | trim
quotes | e
quotes | escape
"<b>" | safe
quotes | tojson
quotes
[quotes]
json | tojson
json | tojson(indent=2)
json | tojson(indent=0)
json | tojson(2)
json | tojson(true)
json | tojson(ensure_ascii=true)
json | tojson(sort_keys=true)
json | tojson(separators=(",", ":"))
json | tojson(indent=4, separators=(",", ": "))
mixed | tojson
mixed | tojson(indent="--")
[] | tojson(indent=2)
{} | tojson(indent=2)
{"a": {}} | tojson(indent=2)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
"😀é" | tojson(ensure_ascii=true)
1.0 | tojson
1e100 | tojson
big | tojson
big + 1
missing | tojson
(1, 2) | tojson
xs | map("string") | tojson
d.items() | tojson
d.items() | list | tojson
d.items()
d.keys()
d.values() | list
d.keys() | list
d.items() | list
d | items | list
missing | items | list
d.get("a")
d.get("q")
d.get("q", 5)
d.get()
d.copy() == d
d | list
d | dictsort
d | dictsort(true)
d | dictsort(false, "value")
d | dictsort(reverse=true)
d | dictsort(by="nope")
xs | first
xs | last
[] | first
[] | last
"" | first
s | first
s | last
missing | first
[] | first is undefined
xs | join
xs | join(", ")
xs | join("-", attribute="x")
people | join(", ", attribute="name")
s | join("-")
d | join(",")
[1, none, missing, true] | join("|")
", ".join(words)
", ".join(xs)
"".join([])
"-".join("abc")
xs | sum
[0.5, 1] | sum
people | sum(attribute="age")
[[1], [2]] | sum(start=[])
[] | sum
["a"] | sum
xs | max
xs | min
words | max
words | min
words | max(case_sensitive=true)
[] | max
people | max(attribute="age")
(people | min(attribute="age")).name
xs | sort
xs | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
people | sort(attribute="name") | map(attribute="name") | list
people | sort(attribute="age,name") | map(attribute="name") | join(",")
people | sort(reverse=true, attribute="age") | map(attribute="name") | join(",")
mixed | sort
"hello" | sort
xs | reverse | list
"abc" | reverse
s | reverse
words | unique | list
words | unique(case_sensitive=true) | list
people | unique(attribute="age") | map(attribute="name") | list
[1, 1.0, true, "1"] | unique | list
xs | map("string") | list
words | map("upper") | join
people | map(attribute="age") | list
people | map(attribute="tags") | list
people | map(attribute="tags.0") | list
people | map(attribute="tags", default="none") | list
words | map("replace", "b", "z") | list
xs | map("nope") | list
people | selectattr("tags") | map(attribute="name") | list
people | selectattr("age", "equalto", 30) | map(attribute="name") | list
people | selectattr("age", ">", 26) | list | length
people | rejectattr("age", "eq", 30) | map(attribute="name") | list
people | rejectattr("tags") | list | length
people | selectattr("tags", "defined") | list | length
people | selectattr("name", "in", ["Zoe", "Bob"]) | map(attribute="name") | join(" ")
xs | select("odd") | list
xs | reject("odd") | list
mixed | select("string") | list
mixed | select | list
mixed | reject("none") | list
xs | select("nope") | list
xs | select("odd") | length
(xs | select("odd")) | first
(xs | select("gt", 100)) and "generators are true"
xs | list
s | list
missing | list
n | list
xs | batch(2) | list
xs | batch(2, 0) | list
range(7) | slice(3) | list
range(7) | slice(3, "x") | list
people | groupby("age") | map("first") | list
"3" | int
"3.9" | int
"x" | int
"x" | int(5)
"0x1f" | int(base=16)
" 12_3 " | int
3.99 | int
-3.99 | int
none | int
true | int
[] | int(9)
missing | int
"1e3" | float
"x" | float
"x" | float(1.5)
3 | float
none | float
"inf" | float
42.55 | round
42.55 | round(1)
42.55 | round(1, "floor")
42.551 | round(2, "ceil")
2.5 | round
3.5 | round
-2.5 | round
5 | round
1234 | round(-2)
2.675 | round(2)
5 | round(method="ceil")
neg | abs
-2.5 | abs
"a" | abs
missing | default("x")
missing | d("x")
missing | default
none | default("x")
none | default("x", true)
empty | default("x", boolean=true)
0 | default(5)
d.zzz | default("q")
d.zzz.y | default("q")
s | replace("l", "L")
s | replace("l", "L", 1)
s | replace("", "-")
"" | replace("", "x")
n | replace(7, 8)
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, true, true)
lines | indent("> ", first=true)
"a" | indent
"" | indent
long | truncate(20)
long | truncate(22, true)
long | truncate(22, false, "…", 0)
"short" | truncate(4)
"x" | center(5)
"x" | center(4)
"ab".center(5)
"ab".ljust(5, ".")
"ab".rjust(5, ".")
"7".zfill(3)
"-7".zfill(4)
long | wordcount
s | wordcount
"%s is %d (%5.2f) %r %x %%" | format("a", 3, 1.5, "q", 255)
"%s-%s" % (1, 2)
"%s" % "x"
"%d" % "x"
"%s %s" % "x"
"%5s|%-5s|%05d|%+d|%e|%g" % ("a", "b", 42, 7, 12345.678, 0.0001)
"%(a)s" % {"a": 1}
"{} {} {}".format(1, "a", none)
"{0} {1} {0}".format(1, 2)
"{a} {{}}".format(a=5)
"{!r}".format("x")
"{}".format()
pad.strip()
pad.lstrip()
pad.rstrip()
"xxaxx".strip("x")
"\n\t a \u00a0\u2003".strip()
"abcabc".lstrip("ab")
"abcabc".rstrip("bc")
"ééaéé".strip("é")
s.split()
s.split(",")
s.split("")
"a,b,c".split(",", 1)
"a,b,c".rsplit(",", 1)
"  a  b  c ".split(none, 1)
"  a  b  c ".split(maxsplit=1)
"  a  b  c ".rsplit(none, 1)
"".split()
"".split(",")
"a</think>b</think>c".split("</think>")[-1]
lines.splitlines()
lines.splitlines(true)
"a\r\nb\rc\x0bd\u2028e".splitlines()
"a-b-c".partition("-")
"a-b-c".rpartition("-")
"abc".partition("-")
"abc".rpartition("-")
s.startswith("Hell")
s.startswith(("x", "H"))
s.startswith("ello", 1)
s.startswith(1)
s.endswith("京")
s.endswith("東", 0, -1)
s.endswith(("x", "y"))
s.find("W")
s.find("京")
s.find("zz")
s.find("l", 4)
s.rfind("l")
s.index("W")
s.index("zz")
s.count("l")
s.count("")
"aaaa".count("aa")
s.replace("l", "L")
s.replace("l", "L", 2)
s.upper()
s.lower()
"hELLO wORLD".capitalize()
"they're bill's".title()
"Ab".swapcase()
"abc".isalpha()
"ab1".isalnum()
"12".isdigit()
"".isdigit()
" \n".isspace()
"abc".islower()
"ABC1".isupper()
"1".isupper()
"é".isascii()
"TestHook".removeprefix("Test")
"MiscTests".removesuffix("Tests")
"abc".removeprefix("x")
"abc".nope()
xs.append(4)
xs.index(1)
xs.index(9)
xs.count(1)
xs.copy()
d.update({"x": 1})
d.pop("a")
d.setdefault("x", 1)
xs.append is defined
xs.sort()
n is number
n is integer
f is float
f is integer
yes is integer
yes is number
yes is boolean
s is string
n is string
d is mapping
xs is mapping
xs is sequence
s is sequence
n is sequence
missing is sequence
xs is iterable
n is iterable
d is iterable
none is none
missing is none
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
missing is odd
"a" is lower
"A" is upper
n is lower
n is eq 7
n is equalto(7)
n is ne 7
n is gt 5
n is lt 5
n is ge 7
n is le 6
n is in [7]
n is not in [7]
n is sameas 7
nil is sameas none
yes is true
1 is true
no is false
range is callable
n is callable
missing is callable
n is not defined
n is nope
n is divisibleby
"upper" is filter
"nope" is filter
"odd" is test
not n is defined
n is defined and s is string
n is odd or false
range(5) | list
range(2, 5) | list
range(5, 0, -2) | list
range(0) | list
range(1000000)
range(1, 2, 0)
range("a")
range(5)[1]
range(5)[1:3] | list
range(3) | length
dict(a=1, b=2)
dict(d, x=1)
dict([(1, 2)])
dict([("a", 2)], b=3)
namespace(a=1).a
namespace(a=1).b
namespace({"x": 5}).x
namespace(a=1)
namespace(a=1)["a"]
strftime_now("%d %b %Y")
strftime_now("%H:%M:%S %A %j")
raise_exception("this went wrong: é")
raise_exception()
nope_function(1)
s()
n | nope
joiner()() ~ "x"
missing | upper
missing | join
missing | string
missing | float
missing | replace("a", "b")
missing | abs
missing | sum
missing | sort
missing | dictsort
1 | string + "a"
-1 | abs
- 1 | abs
"a" ~ "b" | upper
("a" ~ "b") | upper
2 * 3 | string
not 1 == 2
1 + 1 == 2 and 2 in [2]
"a" in "abc" == true
[1, 2][0:1] + [3]
"x" if missing else "y"
none == false
0 == false
"" == false
"1" == 1
[] == []
[1] == [1.0]
(1,) == [1]
{"a": 1} == {"a": 1.0}
{"a": 1, "b": 2} == {"b": 2, "a": 1}
1 != 1
xs == xs[:]
xs is sameas xs
True and None is none and False is false
true.x
+3
+-3
--3
-"a"
-missing
~1
1 +
(1
[1
{"a"}
{"a": }
"unclosed
1 2
a b
1 if
| upper
s |
s | upper |
s..x
s[
s[1:2:3:4]
f(*xs)
range(*[1, 4]) | list
dict(**d)
dict(**{"a": 1})
dict(**n)
range(1, stop=5)
s.split(sep=",")
"a" if true else
not
in
1 in
is defined
@
$
`a`
1 === 1
1 <> 2
1 = 2
a.1x
"\u12"
"\x4"
"\777"
1.
.5
1..2
1.5.x
1.e3
1e
"""  # one a line

STATEMENTS = [
    "plain text", "", "\n", "a\n", "a\n\n", "a\r\nb\rc\n", "{", "{ {", "}}", "%}", "#}", "{{", "{%",
    "{# c #}x", "{# c\nd #}\nx", "a {#- c -#} b", "a {#+ c +#}\n b", "{#-#}", "{# unclosed", "{{ 1 }}\n{{ 2 }}\n",
    "a\n  {% if true %}\n    b\n  {% endif %}\nc", "a\n  {%+ if true %}\n b\n {%+ endif %}\nc",
    "a\n  {%- if true -%}\n    b\n  {%- endif -%}\nc", "a {% if true %} b {% endif %} c",
    "x  {%- set a = 1 %}  y", "x\n\n{%- set a = 1 -%}\n\ny", "x {{- 1 -}} y", "x {{+ 1 }} y", "{{-1}}", "{{- -1 -}}",
    "{% if true +%}\nx{% endif %}", "{% if true %}\n\nx{% endif +%}\n\ny", "  {% set a = 1 %}\n  x",
    "\t{# c #}\t\nx", "a{% if true %}\n{% endif %}\nb", "  {{ 1 }}\n", "x\n \u00a0 {% if true %}y{% endif %}",
    "x\u2003{%- if true -%}\u2003y{% endif %}", "{% if true %}\n  {% if true %}\n  x\n  {% endif %}\n{% endif %}\n",
    "{% raw %}{{ x }}{% endraw %}", "{% raw -%}  {{ x }}  {%- endraw %} y", "a\n {% raw %}\n b\n {% endraw %}\nc", 
    "{%raw%}{% if %}{%endraw%}", "{% raw %}{% endra %}{% endraw %}",
    "{% if n == 7 %}a{% elif n %}b{% else %}c{% endif %}", "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b", "{% if missing.x %}a{% endif %}",
    "{% if xs: %}a{% endif %}", "{% if %}a{% endif %}", "{% if 1 %}a", "{% endif %}", "{% else %}", "{% nope %}", "{% %}",
    "{% if 1 %}{% endfor %}", "{% for x in xs %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in n %}a{% endfor %}", "{% for x in none %}a{% endfor %}",
    "{% for c in s %}{{ c }}|{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for (a, b) in matrix %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in xs %}{{ a }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}", "{% for a, b in [(1,)] %}{{ a }}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}",
    "{% for x in xs if x > 100 %}a{% else %}none{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in xs %}{{ loop.nope }}{% endfor %}", "{% for x in xs %}{{ loop | length }}{% endfor %}",
    "{% for x in matrix %}{% for y in x %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{{ loop }}", "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% break %}", "{% if 1 %}{% continue %}{% endif %}",
    "{% for x in xs %}{% for y in xs %}{% if y == x %}{% break %}{% endif %}{{ y }}{% endfor %};{% endfor %}",
    "{% for x in xs %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in xs %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% set ns = namespace(t=0) %}{% for x in xs %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns.b is defined }}",
    "{% set ns.x = 1 %}", "{% set d.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
    "{% set a, b = 1 %}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ n }}{% endset %}{{ a }}|{{ a | length }}",
    "{% set a | upper | trim %} x {% endset %}[{{ a }}]", "{% set a | replace('x', 'y') %}x{% endset %}{{ a }}",
    "{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}", "{% if no %}{% set q = 2 %}{% endif %}{{ q }}", "{% set true = 1 %}",
    "{% set a %}{% set b = 1 %}{% endset %}{{ b }}", "{% set = 1 %}", "{% set a 1 %}", "{% set a = %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter nope %}a{% endfilter %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=5, a=4) }}|{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m() %}{{ n }}{% endmacro %}{{ m() | length }}",
    "{% macro m() %}{{ q }}{% endmacro %}{% set q = 5 %}{{ m() }}", "{% macro m(x) %}{% if x %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y }}", "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}\n  a\n{% endmacro %}[{{ m() }}]", "{% macro m() -%}\n  a\n{%- endmacro %}[{{ m() }}]", "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m(x) %}{{ caller(x) }}{% endmacro %}{% call(y) m(5) %}<{{ y }}>{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ n }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% break %}{% endmacro %}", "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% call n %}{% endcall %}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m.name }}{{ m is callable }}", "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ xs | map('string') | map('upper') | join(f(',')) }}", "{{ [f] }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}", "{% with a = n, b = a %}{{ b }}{% endwith %}",
    "{% generation %}a{{ n }}{% endgeneration %}", "{% generation %}{% set z = 1 %}{% endgeneration %}{{ z }}", "{% generation %}\n  a\n{% endgeneration %}\nb",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner('|') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% set g = xs | select('odd') %}{{ g | list }}{{ g | list }}", "{% set g = xs | map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}-{% endfor %}",
    "{% set m = d.items() | list %}{{ m[0][0] }}", "{% for p in people %}{{ p.name }}{{ ', ' if not loop.last else '' }}{% endfor %}",
    "{% for g, items in people | groupby('age') %}{{ g }}:{{ items | map(attribute='name') | join('+') }};{% endfor %}",
    "{% if messages is defined %}a{% else %}b{% endif %}", "{% if 'a' in d and d.a == 2 and not no %}ok{% endif %}",
    "{%- for x in xs -%}\n  {{- x -}}\n{%- endfor -%}\n", "{% for x in xs %}\n{{ x }}\n{% endfor %}\nend", "{%for x in xs%}{{x}}{%endfor%}", "{{'}}'}}", "{{ '%}' }}{% if '%}' %}a{% endif %}",
    "{{ {'a': {'b': 2}}['a']['b'] }}", "{{ {'a': 1}}}", "{{ [1, 2]]}}", "{{ (1 }}", "{{ 1) }}", "{{ 'é' ~ \"ü\" }}", "{{ ñ }}", "{% set ñ = 1 %}{{ ñ }}", "{{\n1\n+\n1\n}}",
    "{% if 1 %}{{ raise_exception('inside') }}{% endif %}", "{% if 0 %}{{ raise_exception('inside') }}{% endif %}ok", "{{ s | nope if no else 'lazy' }}",
    "{% include 'x' %}", "{% extends %}", "{% set x = s.split(' ') %}{{ x[0] }}{{ x[-1] }}",
]

SNIPPETS = ["[{{ %s }}]" % line for line in EXPRESSIONS.split("\n") if line] + STATEMENTS
