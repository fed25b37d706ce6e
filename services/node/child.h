// One instance: a process that is started, watched and restarted. Used on one thread, which lives
// as long as the process, because the child ends with that thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::services {

// Pause before a restart: doubled each time, up to `max_s`; back to `first_s` once the instance ran
// for longer than `max_s`.
struct RestartDelays {
  double first_s = 1;
  double max_s = 60;
};

class Child {
 public:
  Child(std::vector<std::string> command, RestartDelays delays)
      : command_(std::move(command)), delays_(delays) {}
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // UNAVAILABLE: no process or pipe can be created. A program that cannot be run ends with code
  // 127.
  absl::Status Start(int64_t now_us);
  // The process has ended, with a status from waitpid.
  void Ended(int wait_status, int64_t now_us);
  void Signal(int signal) const;

  // The descriptor of its output, for poll; -1: closed by the process.
  int output_fd() const { return output_fd_; }
  // The complete lines available now.
  std::vector<std::string> ReadLines();

  const std::vector<std::string>& command() const { return command_; }
  pid_t pid() const { return pid_; }  // 0: not running
  bool running() const { return pid_ != 0; }
  int64_t next_start_us() const { return next_start_us_; }  // if not running
  int64_t starts() const { return starts_; }
  // "killed by SIGKILL", "ended with exit code 2"; "" before the first end.
  const std::string& last_exit() const { return last_exit_; }
  // The last lines that it wrote before that end.
  const std::string& last_words() const { return last_words_; }

 private:
  void CloseOutput();

  const std::vector<std::string> command_;
  const RestartDelays delays_;
  pid_t pid_ = 0;
  int output_fd_ = -1;
  std::string unfinished_;         // the beginning of a line
  std::deque<std::string> lines_;  // the latest
  int64_t starts_ = 0;
  int64_t started_us_ = 0;
  int64_t next_start_us_ = 0;
  double delay_s_ = 0;
  std::string last_exit_;
  std::string last_words_;
};

}  // namespace skein::services
