// One render's limits, clock and first failure. Everything that evaluates takes a Runtime&.
//
// Failures are sticky: Fail() keeps the first message and returns undefined, and evaluation goes
// on with undefined values until the next check of failed(), which every loop and every node
// makes. So code reads straight, and the caller looks once at the end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/chat_template/values/value.h"

namespace skein::engine::chat_template {

class Namespace;

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options) : options_(options) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const RenderLimits& limits() const { return options_.limits; }
  std::chrono::sys_seconds now() const { return options_.now; }

  // The line of the node being evaluated, for messages.
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }

  bool failed() const { return failure_.has_value(); }
  // "line N: ..."; REQUIRES: failed().
  const std::string& failure() const { return *failure_; }
  Value Fail(std::string_view message);
  // Says why `value`, which is undefined, cannot be used so.
  Value FailUndefined(const Value& value) { return Fail(value.WhyUndefined()); }

  // False (and failed) when the render has no steps left.
  bool Charge(uint64_t steps);
  // Pays for a string of that many bytes before it is made.
  bool ChargeBytes(size_t bytes);
  bool ChargeIteration();

  // Makers that keep to the limits; undefined when they would not.
  Value MakeString(std::string text);
  Value MakeList(std::vector<Value> items) {
    return MakeSequence(SequenceKind::kList, std::move(items));
  }
  Value MakeTuple(std::vector<Value> items) {
    return MakeSequence(SequenceKind::kTuple, std::move(items));
  }
  Value MakeGenerator(std::vector<Value> items) {
    return MakeSequence(SequenceKind::kGenerator, std::move(items));
  }
  Value MakeView(std::string_view label, std::vector<Value> items);
  Value MakeSequence(SequenceKind kind, std::vector<Value> items);
  // Adds to a dict that nobody else has seen yet.
  void SetItem(Dict& dict, Value key, Value value);
  Value MakeNamespace(std::shared_ptr<Dict> members);
  bool CheckDepth(int depth);

  // Nodes, calls and filters being evaluated, one inside the other; bounds the stack.
  class Frame {
   public:
    explicit Frame(Runtime& runtime) : runtime_(runtime) {
      if (++runtime_.frames_ > runtime_.limits().call_depth_max) {
        runtime_.Fail("the template's calls are nested too deep");
      }
    }
    ~Frame() { --runtime_.frames_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  const RenderOptions& options_;
  std::optional<std::string> failure_;
  int line_ = 1;
  int frames_ = 0;
  uint64_t steps_ = 0;
  uint64_t iterations_ = 0;
  // Namespaces may reach themselves; they are emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// namespace(...): the one thing that a template may change.
class Namespace : public Object {
 public:
  explicit Namespace(std::shared_ptr<Dict> members) : members_(std::move(members)) {}
  std::string_view TypeName() const override { return "jinja2.utils.Namespace"; }
  bool Get(Runtime& runtime, std::string_view name, Value* out) const override;
  bool IsCallable() const override { return false; }
  Value Call(Runtime& runtime, const Arguments& arguments) override;
  int Depth() const override { return 0; }  // owned by the runtime, see above

  void Set(std::string_view name, Value value);
  void Clear() { members_ = std::make_shared<Dict>(); }
  const Dict& members() const { return *members_; }

 private:
  std::shared_ptr<Dict> members_;
};

// A function of ours. `function` outlives the value.
using NativeFunction = Value (*)(Runtime&, const Arguments&);
Value MakeFunction(NativeFunction function);

}  // namespace skein::engine::chat_template
