#include "services/router/api/body_notes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::services {

std::string WhyNotPlainJson(const http::Request& request) {
  const std::string_view coding = request.Get("Content-Encoding");
  const absl::string_view given(coding.data(), std::min<size_t>(coding.size(), 64));
  if (!given.empty() && !absl::EqualsIgnoreCase(given, "identity")) {
    return absl::StrCat("The request body is compressed ('Content-Encoding: ", given,
                        "'). Send it as it is.");
  }
  if (http::IsMediaType(request.Get("Content-Type"), "application/json")) return {};
  return "The request body must be plain JSON with 'Content-Type: application/json'.";
}

std::vector<http::Header> NoteBody(const http::Request& request, const openai::BodyNotes& notes,
                                   RouterMetrics* metrics) {
  if (notes.unknown == 0) return {};
  metrics->CountUnknownParameters(request.path, notes.unknown);
  if (notes.warnings.empty()) return {};  // with --strict-api the error says it
  std::string text = absl::StrJoin(notes.warnings, "; ");
  const auto rest = notes.unknown - static_cast<int64_t>(notes.warnings.size());
  if (rest > 0) absl::StrAppend(&text, "; and ", rest, " more");
  return {{"X-Skein-Warning", std::move(text)}};
}

}  // namespace skein::services
