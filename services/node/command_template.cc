#include "services/node/command_template.h"

#include <charconv>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr int64_t kNumberMax = 1'000'000'000;

std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < 0 || value > kNumberMax) return std::nullopt;
  return value;
}

// "i", "2*i" or a number.
std::optional<int64_t> Product(const std::string& text, InstanceNumbers numbers) {
  if (text == "i") return numbers.i;
  if (text == "j") return numbers.j;
  const size_t star = text.find('*');
  if (star == std::string::npos) return Number(text);
  const auto factor = Number(text.substr(0, star));
  const std::string name = text.substr(star + 1);
  if (!factor.has_value() || (name != "i" && name != "j")) return std::nullopt;
  return *factor * (name == "i" ? numbers.i : numbers.j);
}

// Products joined by '+'.
std::optional<int64_t> Sum(const std::string& text, InstanceNumbers numbers) {
  int64_t sum = 0;
  for (size_t at = 0;;) {
    const size_t plus = text.find('+', at);
    const auto part = Product(text.substr(at, plus - at), numbers);
    if (!part.has_value()) return std::nullopt;
    sum += *part;
    if (plus == std::string::npos) return sum;
    at = plus + 1;
  }
}

}  // namespace

absl::StatusOr<std::string> Expand(const std::string& argument, InstanceNumbers numbers) {
  std::string out;
  for (size_t at = 0; at < argument.size(); ++at) {
    const char c = argument[at];
    if ((c == '{' || c == '}') && at + 1 < argument.size() && argument[at + 1] == c) {
      out += c;
      ++at;
    } else if (c == '{' || c == '}') {
      const size_t end = c == '{' ? argument.find('}', at) : std::string::npos;
      const auto sum = end == std::string::npos
                           ? std::nullopt
                           : Sum(argument.substr(at + 1, end - at - 1), numbers);
      if (!sum.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", argument,
                         "': only sums such as {i}, {7200+i} or {7600+2*i} are allowed in  "
                         "braces (write {{ and }} for literal braces)"));
      }
      absl::StrAppend(&out, *sum);
      at = end;
    } else {
      out += c;
    }
  }
  return out;
}

std::string FlagIn(const std::vector<std::string>& command, const std::string& flag) {
  const std::string name = "--" + flag;
  std::string value;
  for (size_t at = 0; at < command.size(); ++at) {
    if (command[at] == name && at + 1 < command.size()) value = command[at + 1];
    if (command[at].rfind(name + "=", 0) == 0) value = command[at].substr(name.size() + 1);
  }
  return value;
}

}  // namespace skein::services
