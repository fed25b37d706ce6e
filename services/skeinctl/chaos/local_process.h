// A process of this host, by /proc: what it runs, whether it lives, and starting it again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services::chaos {

// How a process was started; enough to start another one like it.
struct ProcessCommand {
  std::string program;                   // file
  std::vector<std::string> arguments;    // the first is the name by which it was called
  std::vector<std::string> environment;  // "NAME=value"
  std::string folder;                    // working folder
  std::string output;                    // file of its standard output; empty: no file
  std::string errors;                    // of its standard error
};

// NOT_FOUND: no such process. PERMISSION_DENIED: it belongs to another user.
absl::StatusOr<ProcessCommand> CommandOf(pid_t pid);

// Whether it runs, or is stopped. A process that has ended, but whose parent has not noticed, does
// not live.
bool IsAlive(pid_t pid);

// The process that listens on a TCP port of this host and whose file we may read; 0: none.
pid_t ListenerOn(uint16_t port);

// With `port` in the place of a "--port=0" or "--port 0": a process that chose its port must be
// found at the same one again.
ProcessCommand AtPort(ProcessCommand command, uint16_t port);

// Starts it detached from this process; appends to its files. UNAVAILABLE: it cannot be started.
absl::Status StartDetached(const ProcessCommand& command);

// Sends a signal. NOT_FOUND: no such process. PERMISSION_DENIED: it belongs to another user.
absl::Status Signal(pid_t pid, int signal);

// Runs a program to its end and returns its standard output. `arguments[0]` is looked up in PATH.
// UNAVAILABLE: it cannot be started. FAILED_PRECONDITION: it did not end with 0; the message has
// the last line of its standard error.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments);

}  // namespace skein::services::chaos
