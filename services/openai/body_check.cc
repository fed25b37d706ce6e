#include "services/openai/body_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"
#include "services/openai/fields.h"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kWarningsMax = 8;
constexpr size_t kShownNameMax = 64;

std::string Text(double value) {
  char buffer[40];
  const auto end = std::abs(value) < 1e15 && std::trunc(value) == value
                       ? std::to_chars(buffer, buffer + sizeof(buffer), static_cast<int64_t>(value))
                       : std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

ApiError OutOfRange(const std::string& name, const std::string& range, const std::string& value) {
  return InvalidParam(
      name, "Invalid value for '" + name + "': expected " + range + ", got " + value + ".");
}

std::string Between(const Parameter& row, std::string_view noun) {
  return std::string(noun) + " between " + Text(row.low) + " and " + Text(row.high);
}

MaybeError CheckInt(const Parameter& row, const std::string& name, const Json& value) {
  if (!value.is_number()) return WrongType(name, "an integer", &value);
  int64_t number = 0;
  if (row.type == Type::kInt64) {
    if (AsInt(value, &number)) return std::nullopt;
    return OutOfRange(name, "an integer of 64 bits", value.dump());
  }
  const bool within = AsInt(value, &number) && static_cast<double>(number) >= row.low &&
                      static_cast<double>(number) <= row.high;
  if (within) return std::nullopt;
  return OutOfRange(name, Between(row, "an integer"), value.dump());
}

MaybeError CheckNumber(const Parameter& row, const std::string& name, const Json& value) {
  if (!value.is_number()) return WrongType(name, "a number", &value);
  if (row.low == 0 && row.high == 0) return std::nullopt;
  const double number = value.get<double>();
  if (number >= row.low && number <= row.high) return std::nullopt;
  return OutOfRange(name, Between(row, "a number"), value.dump());
}

bool AllStrings(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_string(); });
}

MaybeError CheckTokenIds(const std::string& name, const Json& value) {
  if (!value.is_array()) return WrongType(name, "an array of token ids", &value);
  for (const Json& item : value) {
    int64_t token = -1;
    if (AsInt(item, &token) && token >= 0 && token <= INT32_MAX) continue;
    return InvalidParam(name, "Invalid '" + name + "': expected an array of token ids.");
  }
  return std::nullopt;
}

MaybeError CheckType(const Parameter& row, const std::string& name, const Json& value) {
  const auto expect = [&](bool right, std::string_view what) -> MaybeError {
    return right ? MaybeError() : WrongType(name, what, &value);
  };
  switch (row.type) {
    case Type::kBool:
      return expect(value.is_boolean(), "a boolean");
    case Type::kInt:
    case Type::kInt64:
      return CheckInt(row, name, value);
    case Type::kNumber:
      return CheckNumber(row, name, value);
    case Type::kString:
      return expect(value.is_string(), "a string");
    case Type::kStrings:
      return expect(value.is_string() || (value.is_array() && AllStrings(value)),
                    "a string or an array of strings");
    case Type::kTokenIds:
      return CheckTokenIds(name, value);
    case Type::kObject:
      return expect(value.is_object(), "an object");
    case Type::kArray:
      return expect(value.is_array(), "an array");
    case Type::kAny:
      break;
  }
  return std::nullopt;
}

// Values that have no effect, where the row lists none: null, false, 0 and empty ones.
bool AsksForNothing(const Parameter& row, const Json& value) {
  if (!row.neutral.empty()) {
    const Json list = Json::parse(row.neutral);
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  return (value.is_boolean() && !value.get<bool>()) || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

bool HasAll(const Json& body, std::string_view members) {
  const Json wanted = Json::parse(members);
  return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& item) {
    const auto found = body.find(item.key());
    return found != body.end() && *found == item.value();
  });
}

MaybeError CheckRefused(const Parameter& row, const std::string& name, const Json& value,
                        const Json& body) {
  if (AsksForNothing(row, value)) return std::nullopt;
  if (!row.unless.empty() && HasAll(body, row.unless)) return CheckType(row, name, value);
  return Unsupported(name, std::string(row.meaning));
}

// Levenshtein distance.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

// The row whose name is probably meant by `name`; "": none is close.
std::string_view Nearest(std::span<const Parameter> rows, std::string_view name) {
  std::string_view nearest;
  size_t best = 1 + std::min<size_t>(2, name.size() / 3);
  if (name.size() > kShownNameMax) return nearest;
  for (const Parameter& row : rows) {
    if (row.support != Support::kHonoured) continue;
    const size_t distance = Distance(name, row.name);
    if (distance >= best) continue;
    best = distance;
    nearest = row.name;
  }
  return nearest;
}

// A client's parameter name, made safe for a header.
std::string Shown(std::string_view name) {
  std::string out(name.substr(0, kShownNameMax));
  for (char& c : out) {
    if (c <= 32 || c >= 127 || c == '\'' || c == '"' || c == '\\') c = '?';
  }
  return name.size() > kShownNameMax ? out + "..." : out;
}

class Checker {
 public:
  Checker(std::span<const Parameter> rows, const Json& body, bool strict, BodyNotes* notes)
      : rows_(rows), body_(body), strict_(strict), notes_(notes) {}

  MaybeError Run() {
    if (MaybeError error = Members(body_, "")) return error;
    for (const Parameter& row : rows_) {
      if (row.required && !Given(row.name)) {
        const std::string name(row.name);
        return InvalidParam(name, "Missing required parameter: '" + name + "'.",
                            "missing_required_parameter");
      }
    }
    return std::nullopt;
  }

 private:
  bool Given(std::string_view name) const {
    const auto it = body_.find(std::string(name));
    return it != body_.end() && !it->is_null();
  }

  MaybeError Members(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
      const std::string name = prefix + key;
      const bool dotted = key.find('.') != std::string::npos;
      const Parameter* row = dotted ? nullptr : FindParameter(rows_, name);
      MaybeError error = row == nullptr ? Unknown(name) : Known(*row, name, value);
      if (error) return error;
    }
    return std::nullopt;
  }

  MaybeError Known(const Parameter& row, const std::string& name, const Json& value) {
    if (value.is_null()) return std::nullopt;
    if (row.support == Support::kRefused) return CheckRefused(row, name, value, body_);
    if (MaybeError error = CheckType(row, name, value)) return error;
    const bool nested = std::any_of(rows_.begin(), rows_.end(), [&](const Parameter& other) {
      return other.name.size() > name.size() && other.name.substr(0, name.size()) == name &&
             other.name[name.size()] == '.';
    });
    return nested ? Members(value, name + ".") : std::nullopt;
  }

  MaybeError Unknown(const std::string& name) {
    ++notes_->unknown;
    // Limits the number of names compared, whatever the client sends.
    if (!strict_ && notes_->warnings.size() >= kWarningsMax) return std::nullopt;
    const std::string_view nearest = Nearest(rows_, name);
    const std::string hint =
        nearest.empty() ? "" : " (did you mean '" + std::string(nearest) + "'?)";
    const std::string shown = Shown(name);
    if (strict_) {
      return InvalidParam(shown, "Unknown parameter: '" + shown + "'" + hint + ".",
                          "unknown_parameter");
    }
    notes_->warnings.push_back("unknown parameter '" + shown + "'" + hint);
    return std::nullopt;
  }

  const std::span<const Parameter> rows_;
  const Json& body_;
  const bool strict_;
  BodyNotes* const notes_;
};

}  // namespace

MaybeError CheckBody(std::span<const Parameter> rows, const Json& body, bool strict,
                     BodyNotes* notes) {
  return Checker(rows, body, strict, notes).Run();
}

}  // namespace skein::services::openai
