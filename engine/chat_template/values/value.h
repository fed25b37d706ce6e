// Template values: Python's objects, as far as templates can tell. Immutable except namespaces and
// the position of loops and generators. A value belongs to one render, or is a literal of the
// parsed template (those are strings, numbers, true, false and none only, so sharing them is safe).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace skein::engine::chat_template {

class Dict;
class Runtime;
class Value;
struct Arguments;

// Python's integers are unbounded; 128 bits hold every JSON integer and its sums.
using Int = __int128;

enum class SequenceKind { kList, kTuple, kRange, kView, kGenerator };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::string_view label;  // of a view: "dict_items"
  std::vector<Value> items;
  int depth = 1;
};

// Values with attributes or that can be called: namespaces, loops, macros, methods, functions.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view TypeName() const = 0;
  // False where there is no such attribute.
  virtual bool Get(Runtime& runtime, std::string_view name, Value* out) const = 0;
  virtual bool IsCallable() const = 0;
  virtual Value Call(Runtime& runtime, const Arguments& arguments) = 0;
  // Containers inside one another, as seen from here; bounds the recursion of destructors.
  virtual int Depth() const = 0;
};

struct NoneType {};

// Undefined values know what to say when they are used.
struct UndefinedType {
  std::shared_ptr<const std::string> why;
};

class Value {
 public:
  Value() = default;  // undefined
  Value(NoneType) : data_(NoneType{}) {}
  Value(bool v) : data_(v) {}
  Value(Int v) : data_(v) {}
  Value(int v) : data_(Int{v}) {}
  Value(int64_t v) : data_(Int{v}) {}
  Value(size_t v) : data_(static_cast<Int>(v)) {}
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(std::shared_ptr<Sequence> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<Dict> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<Object> v) : data_(std::move(v)) {}
  static Value Undefined(std::string why);

  bool IsUndefined() const { return Holds<UndefinedType>(); }
  bool IsNone() const { return Holds<NoneType>(); }
  bool IsBool() const { return Holds<bool>(); }
  bool IsInt() const { return Holds<Int>(); }
  bool IsFloat() const { return Holds<double>(); }
  bool IsString() const { return Holds<std::shared_ptr<const std::string>>(); }
  bool IsSequence() const { return Holds<std::shared_ptr<Sequence>>(); }
  bool IsSequence(SequenceKind kind) const { return IsSequence() && sequence().kind == kind; }
  bool IsDict() const { return Holds<std::shared_ptr<Dict>>(); }
  bool IsObject() const { return Holds<std::shared_ptr<Object>>(); }

  // REQUIRES: of that type.
  bool boolean() const { return std::get<bool>(data_); }
  Int integer() const { return std::get<Int>(data_); }
  double real() const { return std::get<double>(data_); }
  std::string_view text() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  Sequence& sequence() const { return *std::get<std::shared_ptr<Sequence>>(data_); }
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }

  // Integers and booleans, as Python counts with them.
  bool AsInt(Int* out) const;
  // Those and floats.
  bool AsNumber(double* out) const;
  bool IsNumber() const { return IsInt() || IsFloat() || IsBool(); }

  bool Truthy() const;
  // Python's `is`.
  bool Identical(const Value& other) const;
  // 0 for scalars; otherwise how many containers are inside one another.
  int Depth() const;
  // "str", "int", "dict", "NoneType", "Undefined", ...
  std::string_view TypeName() const;
  // REQUIRES: undefined. "'x' is undefined".
  std::string WhyUndefined() const;

 private:
  template <typename T>
  bool Holds() const {
    return std::holds_alternative<T>(data_);
  }

  std::variant<UndefinedType, NoneType, bool, Int, double, std::shared_ptr<const std::string>,
               std::shared_ptr<Sequence>, std::shared_ptr<Dict>, std::shared_ptr<Object>>
      data_;
};

// Keys are strings, numbers, booleans and none; in the order of insertion.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

  // nullptr when absent. Valid until the next Set.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);

 private:
  std::vector<Entry> entries_;
  // Index of the string keys, which entries_ own; made when there are many.
  std::unordered_map<std::string_view, size_t> index_;
  int depth_ = 1;
};

// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Equality of two values that are no containers; how dicts compare their keys.
bool ScalarsEqual(const Value& a, const Value& b);

}  // namespace skein::engine::chat_template
