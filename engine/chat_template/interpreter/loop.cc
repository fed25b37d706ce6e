#include "engine/chat_template/interpreter/loop.h"

#include <algorithm>

#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<LoopContext> loop, bool is_cycle)
      : loop_(std::move(loop)), is_cycle_(is_cycle) {}
  std::string_view TypeName() const override { return "method"; }
  bool Get(Runtime&, std::string_view, Value*) const override { return false; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override {
    return is_cycle_ ? loop_->Cycle(runtime, arguments) : loop_->Changed(runtime, arguments);
  }
  int Depth() const override { return 1 + loop_->Depth(); }

 private:
  std::shared_ptr<LoopContext> loop_;
  bool is_cycle_;
};

}  // namespace

LoopContext::LoopContext(std::vector<Value> items) : items_(std::move(items)) {
  for (const Value& item : items_) depth_ = std::max(depth_, 1 + item.Depth());
}

bool LoopContext::Get(Runtime&, std::string_view name, Value* out) const {
  const size_t count = items_.size();
  if (name == "index") {
    *out = index_ + 1;
  } else if (name == "index0") {
    *out = index_;
  } else if (name == "first") {
    *out = index_ == 0;
  } else if (name == "last") {
    *out = index_ + 1 == count;
  } else if (name == "length") {
    *out = count;
  } else if (name == "revindex") {
    *out = count - index_;
  } else if (name == "revindex0") {
    *out = count - index_ - 1;
  } else if (name == "depth") {
    *out = 1;  // only recursive loops go deeper
  } else if (name == "depth0") {
    *out = 0;
  } else {
    return GetNeighbour(name, out);
  }
  return true;
}

bool LoopContext::GetNeighbour(std::string_view name, Value* out) const {
  if (name == "previtem") {
    *out = index_ == 0 ? Value::Undefined("there is no previous item") : items_[index_ - 1];
  } else if (name == "nextitem") {
    const bool last = index_ + 1 >= items_.size();
    *out = last ? Value::Undefined("there is no next item") : items_[index_ + 1];
  } else if (name == "cycle" || name == "changed") {
    auto self = std::const_pointer_cast<LoopContext>(shared_from_this());
    *out = Value(
        std::shared_ptr<Object>(std::make_shared<LoopMethod>(std::move(self), name == "cycle")));
  } else {
    return false;
  }
  return true;
}

Value LoopContext::Call(Runtime& runtime, const Arguments&) {
  return runtime.Fail("The loop must have the 'recursive' marker to be called recursively.");
}

Value LoopContext::Cycle(Runtime& runtime, const Arguments& arguments) const {
  if (arguments.positional.empty()) return runtime.Fail("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

// The values are compared with those of the last call. They are kept one level deep only: a value
// that holds this very loop would keep itself alive.
Value LoopContext::Changed(Runtime& runtime, const Arguments& arguments) {
  const auto& values = arguments.positional;
  for (const Value& v : values) {
    if (v.Depth() > 0) return runtime.Fail("loop.changed takes scalars only");
  }
  bool same = checked_ && values.size() == last_checked_.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    same = Equal(runtime, values[i], last_checked_[i]);
  }
  checked_ = true;
  last_checked_ = values;
  return !same;
}

}  // namespace skein::engine::chat_template
