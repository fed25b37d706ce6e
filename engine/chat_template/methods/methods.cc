#include "engine/chat_template/methods/methods.h"

#include <algorithm>
#include <array>

namespace skein::engine::chat_template {
namespace {

constexpr std::array<std::string_view, 8> kUnsafeOfLists = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kUnsafeOfDicts = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};

class BoundMethod : public Object {
 public:
  BoundMethod(Method method, Value receiver) : method_(method), receiver_(std::move(receiver)) {}
  std::string_view TypeName() const override { return "builtin_function_or_method"; }
  bool Get(Runtime&, std::string_view, Value*) const override { return false; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override {
    return method_(runtime, receiver_, arguments);
  }
  int Depth() const override { return 1 + receiver_.Depth(); }

 private:
  Method method_;
  Value receiver_;
};

}  // namespace

Method FindMethod(const Value& receiver, std::string_view name) {
  return receiver.IsString() ? FindStringMethod(name) : FindCollectionMethod(receiver, name);
}

bool BindMethod(const Value& receiver, std::string_view name, Value* out) {
  const Method method = FindMethod(receiver, name);
  if (method == nullptr) return false;
  *out = Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(method, receiver)));
  return true;
}

bool IsUnsafeMethod(const Value& receiver, std::string_view name) {
  const auto holds = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return (receiver.IsSequence(SequenceKind::kList) && holds(kUnsafeOfLists)) ||
         (receiver.IsDict() && holds(kUnsafeOfDicts));
}

}  // namespace skein::engine::chat_template
