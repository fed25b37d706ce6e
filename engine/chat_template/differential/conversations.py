"""Conversations as clients send them, for every template there is."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather: \"now\" & <later> in Zürich's 東京.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "A city"},
        "days": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615},
        "unit": {"type": "string", "enum": ["c", "f"], "default": None}},
        "required": ["city"]}}}
EMPTY = {"type": "function", "function": {"name": "noop", "parameters": {}}}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, number=0):
    return {"id": "call%05d" % number, "type": "function",
            "function": {"name": name, "arguments": arguments}}


def tool(text, number=0):
    return {"role": "tool", "content": text, "name": "get_weather", "tool_call_id": "call%05d" % number}


MESSAGES = {
    "user": [user("Hello")],
    "system_user": [system("Be brief."), user("Hello")],
    "multi_turn": [system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "ends_with_assistant": [user("a"), assistant("b")],
    "system_only": [system("alone")],
    "late_system": [user("a"), system("now be rude"), user("b")],
    "empty_content": [system(""), user(""), assistant(""), user("")],
    "spaces": [user("  \n padded \t\n"), assistant("\n\nx \n"), user("y")],
    "unicode": [system("Größe 東京 🎉"), user("e\u0301 \u200b \u00a0 \U0001f469\u200d\U0001f467 \u2028"),
                assistant("ß\u0130"), user("\x00\x7f\\ \"q\" 'q' {{ x }} {% if %}")],
    "markup": [user("<|im_start|>system\n<b>&amp;</b></s>"), assistant("<|im_end|>"), user("]]>")],
    "thinking": [user("why"), assistant("<think>\nbecause\n</think>\n\nso"), user("and?"),
                 assistant("<think>a</think>b</think>c")],
    "reasoning_content": [user("q"), assistant("a", reasoning_content="\nlong thought\n"), user("r"),
                          assistant("s", reasoning_content="")],
    "reasoning_none": [user("q"), assistant("x", reasoning_content=None)],
    "tool_call": [user("weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})]),
                  tool("{\"t\": 20.5}")],
    "tool_call_text": [user("weather?"), assistant("Let me see.", tool_calls=[
        call("get_weather", "{\"city\": \"Oslo\"}")]), tool("rain"), assistant("It rains."), user("thanks")],
    "two_calls": [system("s"), user("both"), assistant(None if False else "", tool_calls=[
        call("get_weather", {"city": "a", "nested": {"x": [1, 2.5, None, True]}}, 1),
        call("noop", {}, 2)]), tool("one", 1), tool("two", 2), assistant("done"), user("ok")],
    "builtin_call": [user("news?"), assistant("", tool_calls=[call("brave_search", {"query": "\"x\" & y", "n": "2"})]),
                     {"role": "ipython", "content": {"hits": ["a", 1]}}, assistant("Nothing new.")],
    "flat_call": [user("x"), assistant("", tool_calls=[{"name": "noop", "arguments": {"a": 1}}])],
    "content_none": [user("x"), assistant(None, tool_calls=[call("noop", {})]), tool("y")],
    "content_parts": [user([{"type": "text", "text": "look"}, {"type": "image"}])],
    "content_missing": [{"role": "user"}],
    "unknown_role": [{"role": "critic", "content": "bad"}],
    "tool_response_in_user": [user("a"), user("<tool_response>\nx\n</tool_response>")],
    "two_users": [user("a"), user("b")],
    "none": [],
}

EXTRAS = {
    "plain": {},
    "generate": {"add_generation_prompt": True},
    "tools": {"add_generation_prompt": True, "tools": [WEATHER, EMPTY]},
    "no_tools": {"tools": []},
    "tools_none": {"tools": None, "add_generation_prompt": False},
    "not_thinking": {"add_generation_prompt": True, "enable_thinking": False},
    "thinking": {"add_generation_prompt": True, "enable_thinking": True},
    "dated": {"date_string": "26 Jul 2024", "add_generation_prompt": True, "tools": [WEATHER],
              "tools_in_user_message": False},
    "builtin": {"builtin_tools": ["brave_search", "code_interpreter"], "add_generation_prompt": True},
}


def contexts():
    """(name, context) of each conversation with each set of extra variables."""
    for name, messages in MESSAGES.items():
        for extra, variables in EXTRAS.items():
            yield "%s/%s" % (name, extra), {"messages": messages, "bos_token": "<s>",
                                            "eos_token": "</s>", **variables}
