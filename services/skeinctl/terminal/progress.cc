#include "services/skeinctl/terminal/progress.h"

#include <unistd.h>

#include <utility>

namespace skein::services {

Progress::Progress(std::string what, int64_t total)
    : Progress(std::move(what), total, stderr, isatty(fileno(stderr)) != 0) {}

Progress::Progress(std::string what, int64_t total, FILE* out, bool terminal)
    : what_(std::move(what)), total_(total), out_(out), terminal_(terminal) {}

Progress::~Progress() {
  constexpr char kClearLine[] = "\r\033[K";
  if (terminal_ && step_ > 0) std::fputs(kClearLine, out_);
  std::fflush(out_);
}

bool Progress::IsDue() const {
  return step_ == 1 || step_ == total_ || step_ * 10 / total_ != (step_ - 1) * 10 / total_;
}

void Progress::Step(const std::string& text) {
  ++step_;
  if (!terminal_ && !IsDue()) return;
  std::fprintf(out_, "%s%s: %lld of %lld%s%s%s", terminal_ ? "\r" : "", what_.c_str(),
               static_cast<long long>(step_), static_cast<long long>(total_),
               text.empty() ? "" : ": ", text.c_str(), terminal_ ? "\033[K" : "\n");
  std::fflush(out_);
}

}  // namespace skein::services
