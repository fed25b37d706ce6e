// Binds the arguments of a call to a function's parameters, as Python does.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

class BoundArguments {
 public:
  // The first `required` parameters must be given. After a failure nothing is.
  BoundArguments(Runtime& runtime, std::string_view callee, const Arguments& arguments,
                 std::initializer_list<std::string_view> parameters, size_t required);

  // Passed, and not none.
  bool Given(size_t i) const { return values_[i] != nullptr && !values_[i]->IsNone(); }
  bool Passed(size_t i) const { return values_[i] != nullptr; }
  // REQUIRES: Passed(i).
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value ValueOr(size_t i, Value otherwise) const {
    return values_[i] == nullptr ? std::move(otherwise) : *values_[i];
  }
  bool Truthy(size_t i, bool otherwise) const;
  // The default where it is not given; a failure where it has another type.
  Int IntOr(size_t i, Int otherwise) const;
  std::string TextOr(size_t i, std::string_view otherwise) const;

 private:
  Value FailType(size_t i, std::string_view expected) const;

  Runtime& runtime_;
  std::string callee_;
  std::vector<const Value*> values_;
};

}  // namespace skein::engine::chat_template
