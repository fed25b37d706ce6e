// Chat templates: the Jinja of Hugging Face's `tokenizer_config.json` ("chat_template").
//
// The dialect is Jinja 3.1 as transformers runs it: ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks, break and continue, `{% generation %}` (its body is rendered in place), `tojson`
// as json.dumps(ensure_ascii=False), raise_exception(message) and strftime_now(format). Values
// follow Python (truth, str(), repr(), slices, string methods); mutating methods (list.append,
// dict.update, ...) are refused as the sandbox refuses them. Left out: include, import, extends,
// block, recursive loops, autoescape; integers have 128 bits; case mapping is one code point to
// one (except 'ß'.upper()).
//
// Errors are INVALID_ARGUMENT and say "line N: ..."; raise_exception's message follows as it is.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/chat_template/limits.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::engine {

namespace chat_template {
struct Program;
}

struct RenderOptions {
  // The time that strftime_now formats, as a UTC wall clock; shift it for a local one.
  std::chrono::sys_seconds now{};
  RenderLimits limits;
};

// A parsed template. Immutable; copies share it; any number of threads may render at once.
class ChatTemplate {
 public:
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  // context: an object; its members are the template's variables (messages, tools,
  // add_generation_prompt, bos_token, eos_token, documents, enable_thinking, ...). Dicts keep its
  // key order, so `tojson` prints tools as the client wrote them.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& context,
                                     const RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const chat_template::Program> program);

  std::shared_ptr<const chat_template::Program> program_;
};

}  // namespace skein::engine
