// How far a long command is, on standard error: one line that is rewritten on a terminal; in a file
// or a pipe a line of its own for about every tenth of the steps, so that a log stays short.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace skein::services {

class Progress {
 public:
  // `what` begins each line. `out` outlives this. REQUIRES total > 0.
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
