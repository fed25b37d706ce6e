// Jinja's grammar to the tree of ast.h.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/chat_template/parse/ast.h"

namespace skein::engine::chat_template {

// Errors: INVALID_ARGUMENT "line N: ...".
absl::StatusOr<std::shared_ptr<const Program>> ParseProgram(std::string_view source);

}  // namespace skein::engine::chat_template
