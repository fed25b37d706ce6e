#include "engine/chat_template/interpreter/globals.h"

#include <ctime>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "engine/chat_template/operations/arguments.h"
#include "engine/chat_template/operations/format.h"
#include "engine/chat_template/operations/operators.h"

namespace skein::engine::chat_template {
namespace {

constexpr Int kRangeMax = 100'000;  // Jinja's sandbox has the same

Value Range(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound(runtime, "range", arguments, {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) return runtime.Fail("range() takes no keyword arguments");
  if (runtime.failed()) return Value();
  const bool one = !bound.Passed(1);
  const Int start = one ? 0 : bound.IntOr(0, 0);
  const Int stop = one ? bound.IntOr(0, 0) : bound.IntOr(1, 0);
  const Int step = bound.IntOr(2, 1);
  if (bound[0].IsUndefined()) return runtime.FailUndefined(bound[0]);
  if (step == 0) return runtime.Fail("range() arg 3 must not be zero");
  const auto small = [](Int v) { return v < (Int{1} << 100) && v > -(Int{1} << 100); };
  if (!small(start) || !small(stop) || !small(step)) return runtime.Fail("Range too big.");
  const Int span = step > 0 ? stop - start : start - stop;
  const Int by = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + by - 1) / by;
  if (count > kRangeMax) return runtime.Fail("Range too big.");
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; ++i) items.emplace_back(start + i * step);
  return runtime.MakeSequence(SequenceKind::kRange, std::move(items));
}

// dict(mapping_or_pairs, name=value...)
std::shared_ptr<Dict> MakeDict(Runtime& runtime, const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) runtime.Fail("dict expected at most 1 argument");
  if (!arguments.positional.empty() && arguments.positional[0].IsDict()) {
    for (const auto& [key, value] : arguments.positional[0].dict().entries()) {
      runtime.SetItem(*dict, key, value);
    }
  } else if (!arguments.positional.empty()) {
    for (const Value& pair : Iterate(runtime, arguments.positional[0])) {
      const auto parts = Iterate(runtime, pair);
      if (parts.size() != 2) runtime.Fail("a dict is made of pairs");
      if (runtime.failed()) break;
      runtime.SetItem(*dict, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) runtime.SetItem(*dict, Value(name), value);
  return dict;
}

Value DictFunction(Runtime& runtime, const Arguments& arguments) {
  return Value(MakeDict(runtime, arguments));
}

Value NamespaceFunction(Runtime& runtime, const Arguments& arguments) {
  return runtime.MakeNamespace(MakeDict(runtime, arguments));
}

Value RaiseException(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound(runtime, "raise_exception", arguments, {"message"}, 1);
  if (runtime.failed()) return Value();
  const std::string message = ToText(runtime, bound[0]);
  return runtime.Fail(message);
}

Value StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound(runtime, "strftime_now", arguments, {"format"}, 1);
  const std::string format = bound.TextOr(0, "");
  if (runtime.failed() || format.empty()) return Value("");
  const std::time_t seconds = runtime.now().time_since_epoch().count();
  std::tm broken_down{};
  gmtime_r(&seconds, &broken_down);
  char buffer[4096];
  // A date may be empty by itself; the extra character tells that from one that is too long.
  const size_t bytes = std::strftime(buffer, sizeof buffer, (format + ".").c_str(), &broken_down);
  if (bytes == 0) return runtime.Fail("strftime_now: the date is too long");
  return runtime.MakeString(std::string(buffer, bytes - 1));
}

// joiner(sep): "" the first time it is called, sep from then on.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view TypeName() const override { return "jinja2.utils.Joiner"; }
  bool Get(Runtime&, std::string_view, Value*) const override { return false; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime&, const Arguments&) override {
    return std::exchange(used_, true) ? separator_ : Value("");
  }
  int Depth() const override { return 1 + separator_.Depth(); }

 private:
  Value separator_;
  bool used_ = false;
};

Value JoinerFunction(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound(runtime, "joiner", arguments, {"sep"}, 0);
  return Value(std::shared_ptr<Object>(std::make_shared<Joiner>(bound.ValueOr(0, ", "))));
}

// The state that a cycler and its methods share.
struct Cycle {
  std::vector<Value> items;
  size_t next = 0;
  int depth = 1;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycle> cycle, bool is_reset)
      : cycle_(std::move(cycle)), is_reset_(is_reset) {}
  std::string_view TypeName() const override { return "method"; }
  bool Get(Runtime&, std::string_view, Value*) const override { return false; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime&, const Arguments&) override {
    if (is_reset_) {
      cycle_->next = 0;
      return NoneType{};
    }
    const Value item = cycle_->items[cycle_->next];
    cycle_->next = (cycle_->next + 1) % cycle_->items.size();
    return item;
  }
  int Depth() const override { return 2 + cycle_->depth; }

 private:
  std::shared_ptr<Cycle> cycle_;
  bool is_reset_;
};

class Cycler : public Object {
 public:
  explicit Cycler(std::shared_ptr<Cycle> cycle) : cycle_(std::move(cycle)) {}
  std::string_view TypeName() const override { return "jinja2.utils.Cycler"; }
  bool Get(Runtime&, std::string_view name, Value* out) const override {
    if (name == "current") {
      *out = cycle_->items[cycle_->next];
    } else if (name == "next" || name == "reset") {
      *out =
          Value(std::shared_ptr<Object>(std::make_shared<CyclerMethod>(cycle_, name == "reset")));
    } else {
      return false;
    }
    return true;
  }
  bool IsCallable() const override { return false; }
  Value Call(Runtime& runtime, const Arguments&) override {
    return runtime.Fail("'Cycler' object is not callable");
  }
  int Depth() const override { return 1 + cycle_->depth; }

 private:
  std::shared_ptr<Cycle> cycle_;
};

Value CyclerFunction(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty()) return runtime.Fail("at least one item has to be provided");
  auto cycle = std::make_shared<Cycle>();
  for (const Value& item : arguments.positional) {
    cycle->depth = std::max(cycle->depth, 1 + item.Depth());
  }
  if (!runtime.CheckDepth(cycle->depth)) return Value();
  cycle->items = arguments.positional;
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(std::move(cycle))));
}

}  // namespace

bool FindGlobal(std::string_view name, Value* out) {
  static const auto* const kGlobals = new std::unordered_map<std::string_view, NativeFunction>{
      {"range", Range},
      {"dict", DictFunction},
      {"namespace", NamespaceFunction},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
      {"joiner", JoinerFunction},
      {"cycler", CyclerFunction},
  };
  const auto it = kGlobals->find(name);
  if (it == kGlobals->end()) return false;
  *out = MakeFunction(it->second);
  return true;
}

}  // namespace skein::engine::chat_template
