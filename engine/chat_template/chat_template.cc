#include "engine/chat_template/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "engine/chat_template/interpreter/interpreter.h"
#include "engine/chat_template/operations/json.h"
#include "engine/chat_template/parse/ast.h"
#include "engine/chat_template/parse/parser.h"
#include "engine/chat_template/values/runtime.h"

namespace skein::engine {

ChatTemplate::ChatTemplate(std::shared_ptr<const chat_template::Program> program)
    : program_(std::move(program)) {}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  auto program = chat_template::ParseProgram(source);
  if (!program.ok()) return program.status();
  return ChatTemplate(*std::move(program));
}

absl::StatusOr<std::string> ChatTemplate::Render(const nlohmann::ordered_json& context,
                                                 const RenderOptions& options) const {
  if (!context.is_object()) {
    return absl::InvalidArgumentError("a template's context must be an object");
  }
  chat_template::Runtime runtime(options);
  const chat_template::Value variables = chat_template::FromJson(runtime, context);
  std::string text;
  if (!runtime.failed()) {
    text = chat_template::Interpreter(runtime, *program_, variables).Run();
  }
  if (runtime.failed()) return absl::InvalidArgumentError(runtime.failure());
  return text;
}

}  // namespace skein::engine
