// BrokenBy: the rule.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/compatibility/proto_listing.h"

namespace skein::compatibility {
namespace {

// What stands in a line behind its kind and the words that identify the element.
struct Element {
  std::string meaning;
  bool deprecated = false;
};

// By the words of a line that identify its element, such as "field skein.v1.RequestId 1".
using Elements = std::map<std::string, Element>;

size_t WordsOfKey(const std::string& kind) {
  return kind == "message" || kind == "enum" || kind == "service" ? 2 : 3;
}

Elements Parsed(std::string_view listing) {
  Elements out;
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(listing), '\n', absl::SkipWhitespace());
  for (const std::string& line : lines) {
    if (line[0] == '#') continue;
    std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    Element element;
    element.deprecated = words.back() == "deprecated";
    if (element.deprecated) words.pop_back();
    const auto key_end =
        words.begin() + static_cast<std::ptrdiff_t>(std::min(WordsOfKey(words[0]), words.size()));
    element.meaning = absl::StrJoin(key_end, words.end(), " ");
    out[absl::StrJoin(words.begin(), key_end, " ")] = std::move(element);
  }
  return out;
}

bool StartsWith(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

// "field M 3" gives "reserved M 3", "value E 3" gives "reserved-value E 3"; others none.
std::optional<std::string> ReservationOf(const std::string& key) {
  if (StartsWith(key, "field ")) return "reserved " + key.substr(6);
  if (StartsWith(key, "value ")) return "reserved-value " + key.substr(6);
  return std::nullopt;
}

// The element that this one is a part of: "field M 3" is of "message M". Empty: of none.
std::string OwnerOf(const std::string& key) {
  static const std::map<std::string, std::string> kinds = {{"field", "message"},
                                                           {"reserved", "message"},
                                                           {"value", "enum"},
                                                           {"reserved-value", "enum"},
                                                           {"rpc", "service"}};
  const std::vector<std::string> words = absl::StrSplit(key, ' ');
  const auto kind = kinds.find(words[0]);
  return kind == kinds.end() ? "" : absl::StrCat(kind->second, " ", words[1]);
}

std::optional<std::string> BrokenIn(const Elements& now, const std::string& key,
                                    const Element& released) {
  const auto found = now.find(key);
  if (found != now.end()) {
    if (found->second.meaning == released.meaning) return std::nullopt;
    return absl::StrCat(key, ": was '", released.meaning, "', is '", found->second.meaning,
                        "'; leave it, and add another under a new number or name");
  }
  const std::string owner = OwnerOf(key);
  if (!owner.empty() && now.count(owner) == 0) return std::nullopt;  // that line says it
  if (StartsWith(key, "reserved")) {
    return absl::StrCat(key, ": is not reserved any more; a number is never used again");
  }
  if (!released.deprecated) {
    return absl::StrCat(key, " (", released.meaning,
                        "): is gone, but the release did not have it as deprecated; keep it for "
                        "one minor version with [deprecated = true]");
  }
  const std::optional<std::string> reservation = ReservationOf(key);
  if (reservation.has_value() && now.count(*reservation) == 0) {
    return absl::StrCat(key, " (", released.meaning, "): is gone; write '", *reservation,
                        "' in its place, so that its number is never used again");
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> BrokenBy(std::string_view now, std::string_view released) {
  const Elements elements = Parsed(now);
  std::vector<std::string> broken;
  for (const auto& [key, element] : Parsed(released)) {
    std::optional<std::string> problem = BrokenIn(elements, key, element);
    if (problem.has_value()) broken.push_back(*std::move(problem));
  }
  return broken;
}

}  // namespace skein::compatibility
