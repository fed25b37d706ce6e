// Writes to standard error without ever waiting for who reads it. Internal to services/base
// (log.cc).
#pragma once

#include <string>
#include <string_view>

namespace skein::services {

// One thread at a time.
class StderrWriter {
 public:
  StderrWriter();
  ~StderrWriter();
  StderrWriter(const StderrWriter&) = delete;
  StderrWriter& operator=(const StderrWriter&) = delete;

  // By one write, after the rest of the last text if that did not fit whole. False: there is no
  // room, and `text` is not written.
  bool Write(std::string_view text);

 private:
  // As write(2).
  long Attempt(std::string_view text) const;

  int descriptor_;  // its own, if stderr is a pipe
  bool is_socket_ = false;
  std::string rest_;
};

}  // namespace skein::services
