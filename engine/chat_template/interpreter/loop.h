// The `loop` variable.
#pragma once

#include <vector>

#include "engine/chat_template/values/runtime.h"

namespace skein::engine::chat_template {

class LoopContext : public Object, public std::enable_shared_from_this<LoopContext> {
 public:
  explicit LoopContext(std::vector<Value> items);

  std::string_view TypeName() const override { return "LoopContext"; }
  bool Get(Runtime& runtime, std::string_view name, Value* out) const override;
  bool IsCallable() const override { return false; }
  Value Call(Runtime& runtime, const Arguments& arguments) override;
  int Depth() const override { return depth_; }

  size_t size() const { return items_.size(); }
  const Value& item(size_t i) const { return items_[i]; }
  void set_index(size_t index) { index_ = index; }

  Value Cycle(Runtime& runtime, const Arguments& arguments) const;
  Value Changed(Runtime& runtime, const Arguments& arguments);

 private:
  bool GetNeighbour(std::string_view name, Value* out) const;

  std::vector<Value> items_;
  size_t index_ = 0;
  int depth_ = 1;
  std::vector<Value> last_checked_;
  bool checked_ = false;
};

}  // namespace skein::engine::chat_template
