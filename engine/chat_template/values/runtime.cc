#include "engine/chat_template/values/runtime.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::engine::chat_template {
namespace {

constexpr size_t kBytesPerStep = 16;

class Function : public Object {
 public:
  explicit Function(NativeFunction function) : function_(function) {}
  std::string_view TypeName() const override { return "function"; }
  bool Get(Runtime&, std::string_view, Value*) const override { return false; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override {
    return function_(runtime, arguments);
  }
  int Depth() const override { return 0; }

 private:
  NativeFunction function_;
};

}  // namespace

Runtime::~Runtime() {
  for (const auto& n : namespaces_) n->Clear();
}

Value Runtime::Fail(std::string_view message) {
  if (!failed()) {
    failure_ =
        absl::StrCat("line ", line_, ": ", absl::string_view(message.data(), message.size()));
  }
  return Value();
}

bool Runtime::Charge(uint64_t steps) {
  steps_ += std::min(steps, limits().steps_max + 1);
  if (steps_ > limits().steps_max) Fail("the template takes too many steps");
  return !failed();
}

bool Runtime::ChargeBytes(size_t bytes) {
  if (bytes > limits().output_bytes_max) {
    Fail("the template makes too long a text");
    return false;
  }
  return Charge(1 + bytes / kBytesPerStep);
}

bool Runtime::ChargeIteration() {
  if (++iterations_ > limits().loop_iterations_max) Fail("the template's loops run too often");
  return Charge(1);
}

Value Runtime::MakeString(std::string text) {
  if (!ChargeBytes(text.size())) return Value();
  return Value(std::move(text));
}

bool Runtime::CheckDepth(int depth) {
  if (depth > limits().value_depth_max) Fail("a value is nested too deep");
  return !failed();
}

Value Runtime::MakeView(std::string_view label, std::vector<Value> items) {
  Value view = MakeSequence(SequenceKind::kView, std::move(items));
  if (view.IsSequence()) view.sequence().label = label;
  return view;
}

Value Runtime::MakeSequence(SequenceKind kind, std::vector<Value> items) {
  if (!Charge(1 + items.size())) return Value();
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items) sequence->depth = std::max(sequence->depth, 1 + item.Depth());
  if (!CheckDepth(sequence->depth)) return Value();
  sequence->items = std::move(items);
  return Value(std::move(sequence));
}

void Runtime::SetItem(Dict& dict, Value key, Value value) {
  const bool hashable = key.IsString() || key.IsNumber() || key.IsNone();
  if (!hashable) {
    Fail(absl::StrCat("a dict key cannot be of type ", std::string(key.TypeName())));
    return;
  }
  // A key that is no string is searched for among all the others.
  if (!Charge(1 + (key.IsString() ? 0 : dict.size()))) return;
  if (CheckDepth(1 + value.Depth())) dict.Set(std::move(key), std::move(value));
}

Value Runtime::MakeNamespace(std::shared_ptr<Dict> members) {
  if (!Charge(16)) return Value();
  namespaces_.push_back(std::make_shared<Namespace>(std::move(members)));
  return Value(std::shared_ptr<Object>(namespaces_.back()));
}

bool Namespace::Get(Runtime&, std::string_view name, Value* out) const {
  const Value* found = members_->Find(name);
  if (found != nullptr) *out = *found;
  return found != nullptr;
}

Value Namespace::Call(Runtime& runtime, const Arguments&) {
  return runtime.Fail("'Namespace' object is not callable");
}

void Namespace::Set(std::string_view name, Value value) {
  members_->Set(Value(name), std::move(value));
}

Value MakeFunction(NativeFunction function) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(function)));
}

}  // namespace skein::engine::chat_template
