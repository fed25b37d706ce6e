#include "engine/chat_template/operations/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::engine::chat_template {

BoundArguments::BoundArguments(Runtime& runtime, std::string_view callee,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters, size_t required)
    : runtime_(runtime), callee_(callee), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters.size()) {
    runtime.Fail(absl::StrCat(callee_, "() takes at most ", parameters.size(), " arguments, got ",
                              arguments.positional.size()));
    return;
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* const parameter = std::find(parameters.begin(), parameters.end(), name);
    const size_t i = static_cast<size_t>(parameter - parameters.begin());
    if (parameter == parameters.end() || values_[i] != nullptr) {
      runtime.Fail(absl::StrCat(callee_, "() got an unexpected keyword argument '", name, "'"));
      std::fill(values_.begin(), values_.end(), nullptr);
      return;
    }
    values_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] != nullptr) continue;
    runtime.Fail(
        absl::StrCat(callee_, "() misses its argument '", std::string(parameters.begin()[i]), "'"));
    std::fill(values_.begin(), values_.end(), nullptr);
    return;
  }
}

bool BoundArguments::Truthy(size_t i, bool otherwise) const {
  return Passed(i) ? values_[i]->Truthy() : otherwise;
}

Value BoundArguments::FailType(size_t i, std::string_view expected) const {
  if (values_[i]->IsUndefined()) return runtime_.FailUndefined(*values_[i]);
  return runtime_.Fail(absl::StrCat(callee_, "() argument ", i + 1, " must be ",
                                    std::string(expected), ", not ",
                                    std::string(values_[i]->TypeName())));
}

Int BoundArguments::IntOr(size_t i, Int otherwise) const {
  if (!Given(i)) return otherwise;
  Int value = otherwise;
  if (!values_[i]->AsInt(&value)) FailType(i, "int");
  return value;
}

std::string BoundArguments::TextOr(size_t i, std::string_view otherwise) const {
  if (!Given(i)) return std::string(otherwise);
  if (values_[i]->IsString()) return std::string(values_[i]->text());
  FailType(i, "str");
  return std::string(otherwise);
}

}  // namespace skein::engine::chat_template
