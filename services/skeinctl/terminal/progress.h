// Progress of a long command, on standard error. On a terminal one line is rewritten; in a file or
// pipe about every tenth step has its own line, so that a log stays short.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace skein::services {

class Progress {
 public:
  // `what` starts each line. `out` outlives this object. REQUIRES total > 0.
  Progress(std::string what, int64_t total);
  Progress(std::string what, int64_t total, FILE* out, bool terminal);
  ~Progress();  // leaves the terminal's cursor at the start of a line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The next step begins: "WHAT: 3 of 28: TEXT", or "WHAT: 3 of 28" without a text.
  void Step(const std::string& text);

 private:
  bool IsDue() const;

  const std::string what_;
  const int64_t total_;
  FILE* const out_;
  const bool terminal_;
  int64_t step_ = 0;
};

}  // namespace skein::services
