#include "engine/chat_template/interpreter/scope.h"

namespace skein::engine::chat_template {

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    for (const auto& [key, value] : scope->variables_) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [key, old] : variables_) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables_.emplace_back(name, std::move(value));
}

void Scope::Capture() {
  for (Scope* scope = this; scope != nullptr && !scope->captured_; scope = scope->parent_) {
    scope->captured_ = true;
  }
}

}  // namespace skein::engine::chat_template
