#include "engine/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace skein::engine {
namespace {

using nlohmann::ordered_json;

absl::StatusOr<std::string> Render(std::string_view source, const ordered_json& context,
                                   const RenderOptions& options = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(context, options);
}

std::string Text(std::string_view source, const ordered_json& context = ordered_json::object()) {
  const auto text = Render(source, context);
  return text.ok() ? *text : "error: " + std::string(text.status().message());
}

std::string ErrorOf(std::string_view source, const ordered_json& context = ordered_json::object()) {
  const auto text = Render(source, context);
  EXPECT_FALSE(text.ok()) << *text;
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(text.status().message());
}

std::string Repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// The chat template of a tokenizer_config.json, "" where the file is not to be had.
std::string TemplateOf(const char* root_variable, const std::string& path) {
  const char* const root = std::getenv(root_variable);
  if (root == nullptr || *root == '\0') return "";
  std::ifstream file(std::string(root) + path);
  const auto config = ordered_json::parse(file, nullptr, false);
  return config.is_object() ? config.value("chat_template", "") : "";
}

ordered_json Conversation() {
  return ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be kind."},
                 {"role": "user", "content": "Weather in Zürich?"},
                 {"role": "assistant", "content": "", "tool_calls": [
                   {"type": "function", "function":
                     {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}]},
                 {"role": "tool", "content": "sunny"}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters":
                {"type": "object", "properties": {"city": {"type": "string"}}}}}],
    "bos_token": "<|begin_of_text|>",
    "add_generation_prompt": true})");
}

TEST(ChatTemplate, RendersQwen3) {
  const std::string source = TemplateOf("SKEIN_SHARED", "/tokenizers/qwen3/tokenizer_config.json");
  if (source.empty()) GTEST_SKIP() << "needs ../shared";
  auto context = Conversation();
  context["enable_thinking"] = false;
  EXPECT_EQ(
      Text(source, context),
      "<|im_start|>system\nBe kind.\n\n# Tools\n\nYou may call one or more functions to assist "
      "with "
      "the user query.\n\nYou are provided with function signatures within <tools></tools> XML "
      "tags:\n<tools>\n"
      "{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": "
      "\"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}\n"
      "</tools>\n\nFor each function call, return a json object with function name and arguments "
      "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
      "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"
      "<|im_start|>user\nWeather in Zürich?<|im_end|>\n"
      "<|im_start|>assistant\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Zürich\", \"days\": 2}}\n</tool_call><|im_end|>\n"
      "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatTemplate, KeepsTheClientsKeyOrder) {
  EXPECT_EQ(
      Text("{{ t | tojson }}", ordered_json::parse(R"({"t": {"z": 1, "a": {"y": [], "b": 2}}})")),
      R"({"z": 1, "a": {"y": [], "b": 2}})");
}

TEST(ChatTemplate, TakesTheTimeFromItsCaller) {
  RenderOptions options;
  options.now = std::chrono::sys_seconds(std::chrono::seconds(1'721'996'096));
  EXPECT_EQ(*Render("{{ strftime_now('%d %b %Y %H:%M') }}", ordered_json::object(), options),
            "26 Jul 2024 12:14");
  EXPECT_NE(ErrorOf("{{ strftime_now('%9999d') }}").find("too long"), std::string::npos);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("a\n\n{{ raise_exception('Roles must alternate') }}"),
            "line 3: Roles must alternate");
  EXPECT_EQ(ErrorOf("a\n{{ x.y }}"), "line 2: 'x' is undefined");
  EXPECT_EQ(ErrorOf("{% if true %}\n{{ 1 + }}{% endif %}"), "line 2: unexpected end of a tag");
  EXPECT_EQ(ErrorOf("{% macro m() %}\n{{ none.x.y }}{% endmacro %}\n\n{{ m() }}"),
            "line 2: 'None' has no attribute 'x'");
  EXPECT_EQ(ErrorOf("{{ 1 }}", ordered_json::array()), "a template's context must be an object");
}

TEST(ChatTemplate, RefusesToChangeItsInput) {
  EXPECT_EQ(ErrorOf("{{ x.append(1) }}", {{"x", ordered_json::array()}}),
            "line 1: access to attribute 'append' of 'list' object is unsafe.");
}

TEST(ChatTemplate, BoundsNestingOfTheTemplate) {
  for (const char* open : {"(", "[", "{'a':", "not ", "-", "x[", "f(", "1 if ", "x|d("}) {
    EXPECT_FALSE(ChatTemplate::Parse("{{" + Repeat(open, 20'000)).ok()) << open;
  }
  for (const char* more : {".a", "[0]", "()", "|d", " is odd", "+1", "~1", "**1", " or 1", "*1"}) {
    EXPECT_FALSE(ChatTemplate::Parse("{{x" + Repeat(more, 20'000) + "}}").ok()) << more;
  }
  EXPECT_FALSE(ChatTemplate::Parse(Repeat("{% if x %}", 20'000)).ok());
  EXPECT_FALSE(ChatTemplate::Parse(Repeat("{% for x in y %}", 20'000)).ok());
  EXPECT_FALSE(ChatTemplate::Parse("{% for " + Repeat("(", 20'000)).ok());
  EXPECT_FALSE(ChatTemplate::Parse(std::string(kTemplateBytesMax + 1, 'x')).ok());
  EXPECT_EQ(Text("{% if no %}{% " + Repeat("elif no %}{% ", 5'000) + "else %}x{% endif %}"), "x");
}

TEST(ChatTemplate, BoundsTheWorkOfARender) {
  const auto empty = ordered_json::object();
  const std::vector<std::string> bombs = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
      "%}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s }}",
      "{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(99) %}"
      "{% set a.s = [a.s, a.s] %}{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s | tojson }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall "
      "%}{% endmacro %}{{ n() }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}",
      "{{ 'x' * 999999999999 }}",
      "{{ [1] * 999999999999 }}",
      "{{ 'x' | center(999999999999) }}",
      "{{ '%9999999999s' % 1 }}",
      "{{ 'x'.ljust(99999999999) }}",
      "{{ ('a' * 1000000).replace('', 'x' * 1000) }}",
      "{{ ['a' * 1000000] * 1000 | join }}",
      "{{ (['a'] * 100000) | join('x' * 1000) }}",
      "{{ ('a\\n' * 1000000) | indent('x' * 1000) }}",
      "{{ range(100000) | unique | list | length }}",
      "{{ 'aaaaaaaa' | map(*(['map'] * 90000)) | list }}",
      "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
      "{% for i in range(99999) %}{% set x = 'x' * 100000 %}{% endfor %}",
      "{{ 9 ** 999999999999 }}",
      "{{ ('a' * 1000000 + 'b').rfind('a' * 500000 + 'c' + 'a' * 400000) }}" +
          Repeat("{{ 1 }}", 10) + "{{ x.y }}",
  };
  RenderOptions options;
  options.limits.steps_max = 200'000;
  for (const std::string& bomb : bombs) EXPECT_FALSE(Render(bomb, empty, options).ok()) << bomb;
}

TEST(ChatTemplate, BoundsTheDepthOfItsInput) {
  ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = ordered_json::array({deep});
  EXPECT_NE(ErrorOf("{{ x }}", {{"x", deep}}).find("too deep"), std::string::npos);
}

TEST(ChatTemplate, DeepestAllowedCallsFitTheStack) {
  const std::string source =
      "{% macro m(x) %}{% for i in [1] %}{% if x %}{{ [m(x - 1) | upper] | join }}{% endif %}"
      "{% endfor %}{% endmacro %}{{ m(1000) }}";
  EXPECT_NE(ErrorOf(source).find("nested too deep"), std::string::npos);
  EXPECT_EQ(
      Text("{% macro m(x) %}{{ x }}{% if x %}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(30) }}")
          .substr(0, 6),
      "302928");
}

TEST(ChatTemplate, SurvivesInvalidUtf8) {
  const std::string broken = "a\xff\xc3(\xe6\x9d";
  EXPECT_EQ(Text("{{ x }}{{ x[::-1] | length }}", {{"x", broken}}), broken + "6");
  EXPECT_EQ(Text("\xff{{ 'é'[0] }}"), "\xffé");
  EXPECT_FALSE(ChatTemplate::Parse("{{ \xff }}").ok());
}

TEST(ChatTemplate, RendersOnManyThreads) {
  const auto parsed = ChatTemplate::Parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content|length %}"
      "{{ m.role ~ ':' ~ m.content | trim }};{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(parsed.ok());
  const auto context = Conversation();
  const std::string expected = *parsed->Render(context);
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) same[t] += *parsed->Render(context) == expected ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 200));
}

}  // namespace
}  // namespace skein::engine
