// Variables. A name is looked for outwards; assignments go to the innermost scope.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat_template/values/value.h"

namespace skein::engine::chat_template {

class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  // nullptr when no scope has it.
  const Value* Find(std::string_view name) const;
  // `name` outlives the scope: it belongs to the template.
  void Set(std::string_view name, Value value);
  Scope* parent() const { return parent_; }

  // A macro was defined here or further in, so it may outlast the block that it belongs to.
  bool captured() const { return captured_; }
  void Capture();

 private:
  Scope* parent_;
  std::vector<std::pair<std::string_view, Value>> variables_;
  bool captured_ = false;
};

}  // namespace skein::engine::chat_template
