// Renders templates: one JSON object {"template", "context"} a line on standard input, one
// {"text"} or {"error"} a line on standard output. For tests that compare with other engines.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/chat_template/chat_template.h"

namespace {

using nlohmann::ordered_json;

ordered_json Answer(const ordered_json& request) {
  const auto source = request.find("template");
  const auto context = request.find("context");
  if (source == request.end() || !source->is_string() || context == request.end()) {
    return {{"error", "a request has a template and a context"}};
  }
  const auto parsed = skein::engine::ChatTemplate::Parse(source->get_ref<const std::string&>());
  if (!parsed.ok()) return {{"error", std::string(parsed.status().message())}};
  const auto text = parsed->Render(*context);
  if (!text.ok()) return {{"error", std::string(text.status().message())}};
  return {{"text", *text}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = ordered_json::parse(line, nullptr, false);
    const ordered_json answer =
        request.is_object() ? Answer(request) : ordered_json{{"error", "not a JSON object"}};
    std::cout << answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  }
  return 0;
}
