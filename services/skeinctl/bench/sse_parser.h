// Incremental parser of server-sent events (WHATWG HTML, section 9.2.6), as far as OpenAI's API
// uses them: the data of each event. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace skein::services::bench {

class SseParser {
 public:
  // `event` gets the data of each event, its lines joined by LF; it is called inside Feed.
  explicit SseParser(std::function<void(const std::string&)> event) : event_(std::move(event)) {}

  // Line ends are LF, CR or CR LF. Comments and fields other than data are skipped. An incomplete
  // event is kept for the next call.
  void Feed(std::string_view bytes);

 private:
  void Line(std::string_view line);

  std::function<void(const std::string&)> event_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a LF that comes next belongs to the previous CR
};

}  // namespace skein::services::bench
