// Input: a chat template, a zero byte, the JSON context it is rendered with (without one: a small
// conversation). What parses must render or fail within its limits, and twice the same.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/chat_template/chat_template.h"
#include "scheduler/vocabulary/check.h"

namespace {

constexpr std::string_view kConversation =
    R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "ü\n"},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
        "arguments": {"a": [1, 2.5, true]}}}]}], "tools": [{"name": "f"}], "n": -7})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto parsed = skein::engine::ChatTemplate::Parse(input.substr(0, end));
  if (!parsed.ok()) return 0;
  const std::string_view json = end == input.npos ? kConversation : input.substr(end + 1);
  const auto context = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!context.is_object()) return 0;
  skein::engine::RenderOptions options;
  options.limits.steps_max = 50'000;
  options.limits.output_bytes_max = 1 << 20;
  const auto once = parsed->Render(context, options);
  const auto again = parsed->Render(context, options);
  SKEIN_CHECK(once.status() == again.status());
  SKEIN_CHECK(!once.ok() || (*once == *again && once->size() <= options.limits.output_bytes_max));
  return 0;
}
