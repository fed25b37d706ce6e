#include "engine/chat_template/values/value.h"

#include <algorithm>

namespace skein::engine::chat_template {
namespace {

constexpr size_t kLinearSearchMax = 8;

}  // namespace

const Value* Dict::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &entries_[it->second].second;
  }
  for (const Entry& entry : entries_) {
    if (entry.first.IsString() && entry.first.text() == key) return &entry.second;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.IsString()) return Find(key.text());
  for (const Entry& entry : entries_) {
    if (ScalarsEqual(entry.first, key)) return &entry.second;
  }
  return nullptr;
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max(depth_, 1 + value.Depth());
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() <= kLinearSearchMax) return;
  const size_t first_unindexed = index_.empty() ? 0 : entries_.size() - 1;
  for (size_t i = first_unindexed; i < entries_.size(); ++i) {
    if (entries_[i].first.IsString()) index_.emplace(entries_[i].first.text(), i);
  }
}

Value Value::Undefined(std::string why) {
  Value v;
  v.data_ = UndefinedType{std::make_shared<const std::string>(std::move(why))};
  return v;
}

bool Value::AsInt(Int* out) const {
  if (IsInt()) {
    *out = integer();
  } else if (IsBool()) {
    *out = boolean() ? 1 : 0;
  } else {
    return false;
  }
  return true;
}

bool Value::AsNumber(double* out) const {
  Int i = 0;
  if (IsFloat()) {
    *out = real();
  } else if (AsInt(&i)) {
    *out = static_cast<double>(i);
  } else {
    return false;
  }
  return true;
}

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsBool()) return boolean();
  if (IsInt()) return integer() != 0;
  if (IsFloat()) return real() != 0;
  if (IsString()) return !text().empty();
  if (IsSequence()) return IsSequence(SequenceKind::kGenerator) || !sequence().items.empty();
  if (IsDict()) return dict().size() != 0;
  return true;
}

bool Value::Identical(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (IsSequence()) return &sequence() == &other.sequence();
  if (IsDict()) return &dict() == &other.dict();
  if (IsObject()) return &object() == &other.object();
  return ScalarsEqual(*this, other);
}

int Value::Depth() const {
  if (IsSequence()) return sequence().depth;
  if (IsDict()) return dict().depth();
  if (IsObject()) return object().Depth();
  return 0;
}

std::string_view Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInt()) return "int";
  if (IsFloat()) return "float";
  if (IsString()) return "str";
  if (IsDict()) return "dict";
  if (IsObject()) return object().TypeName();
  switch (sequence().kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kView:
      return sequence().label;
    case SequenceKind::kGenerator:
      return "generator";
  }
  return "object";
}

std::string Value::WhyUndefined() const {
  const auto& why = std::get<UndefinedType>(data_).why;
  return why == nullptr ? "value is undefined" : *why;
}

bool ScalarsEqual(const Value& a, const Value& b) {
  Int i = 0;
  Int j = 0;
  if (a.AsInt(&i) && b.AsInt(&j)) return i == j;
  double x = 0;
  double y = 0;
  if (a.AsNumber(&x) && b.AsNumber(&y)) return x == y;
  if (a.IsString() && b.IsString()) return a.text() == b.text();
  return (a.IsNone() && b.IsNone()) || (a.IsUndefined() && b.IsUndefined());
}

}  // namespace skein::engine::chat_template
