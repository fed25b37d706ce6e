#include "services/skeinctl/bench/sse_parser.h"

namespace skein::services::bench {

void SseParser::Feed(std::string_view bytes) {
  for (const char byte : bytes) {
    const bool second = after_return_ && byte == '\n';
    after_return_ = byte == '\r';
    if (second) continue;
    if (byte == '\n' || byte == '\r') {
      Line(line_);
      line_.clear();
    } else {
      line_ += byte;
    }
  }
}

void SseParser::Line(std::string_view line) {
  constexpr std::string_view kData = "data";
  if (line.empty()) {
    if (has_data_) event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != kData) return;
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace skein::services::bench
