// What JobCore is told, and what it orders (job_core.h). A job has a number, which its store gives
// it; a line is named by its job and its number in the input file, from 1.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "scheduler/base/time.h"
#include "scheduler/jobs/job_room.h"

namespace skein::scheduler::jobs {

struct LineKey {
  uint64_t job = 0;
  uint64_t line = 0;
  auto operator<=>(const LineKey&) const = default;
};

// A line that is to be computed.
struct LineInfo {
  uint64_t line = 0;
  uint64_t prefix = 0;  // equal for lines whose prompts begin alike
  int64_t tokens = 0;   // prompt and output, estimated
};

struct LineTokens {
  uint64_t prompt = 0;
  uint64_t cached = 0;  // of the prompt's
  uint64_t output = 0;
  bool operator==(const LineTokens&) const = default;
};

// Of the lines of a job whose results are kept.
struct LineCounts {
  uint64_t completed = 0;
  uint64_t failed = 0;
  LineTokens tokens;  // of completed lines
  bool operator==(const LineCounts&) const = default;
};

enum class JobEnd { kCompleted, kExpired, kCancelled };

// --- Events.

// A job that was created, or that the store has from before.
struct AddJob {
  uint64_t job = 0;
  TimeUs expires = kNever;
  bool checked = false;            // its input is right, and `lines` are those without a result
  std::optional<JobEnd> end = {};  // it is about to end so
  std::vector<LineInfo> lines = {};
  LineCounts counts = {};
};
// Its input is right.
struct JobChecked {
  uint64_t job = 0;
  std::vector<LineInfo> lines;
};
// It has ended in the store, or its input was wrong.
struct JobGone {
  uint64_t job = 0;
};
struct CancelJob {
  uint64_t job = 0;
};
// The first message of a router's stream; a later stream of a router takes the place of the former.
struct RouterConnected {
  uint64_t stream = 0;
  uint64_t router = 0;
  int64_t room = 0;
  std::vector<LineKey> held;
};
struct RouterDisconnected {
  uint64_t stream = 0;
};
struct RouterSpoke {
  uint64_t stream = 0;
};
// `payload`: the shell's number for the result's bytes; it comes back in KeepResult or DropResult.
struct LineAnswered {
  uint64_t stream = 0;
  LineKey key;
  bool ok = false;
  LineTokens tokens;
  uint64_t payload = 0;
};
struct LineReturned {
  uint64_t stream = 0;
  LineKey key;
};
// The result of KeepResult survives.
struct ResultKept {
  LineKey key;
};
struct LoadSeen {
  ClusterLoad load;
};
// Whether the store takes results. While it does not, no line is given.
struct StoreStands {
  bool ok = true;
};
struct JobTick {};

using JobEvent = std::variant<AddJob, JobChecked, JobGone, CancelJob, RouterConnected,
                              RouterDisconnected, RouterSpoke, LineAnswered, LineReturned,
                              ResultKept, LoadSeen, StoreStands, JobTick>;

// --- Effects.

// Check the input: answered by JobChecked or JobGone.
struct CheckInput {
  uint64_t job = 0;
};
struct GiveLine {
  uint64_t stream = 0;
  LineKey key;
  TimeUs within_us = 0;  // what is left of the job's window
};
// The router drops the line.
struct WithdrawLine {
  uint64_t stream = 0;
  LineKey key;
};
// The router forgets the result.
struct AcknowledgeLine {
  uint64_t stream = 0;
  LineKey key;
};
// Answered by ResultKept, however long it takes.
struct KeepResult {
  LineKey key;
  uint64_t payload = 0;
};
struct DropResult {
  uint64_t payload = 0;
};
// All results are kept: write the output. Answered by JobGone.
struct EndJob {
  uint64_t job = 0;
  JobEnd how = JobEnd::kCompleted;
};

using JobEffect = std::variant<CheckInput, GiveLine, WithdrawLine, AcknowledgeLine, KeepResult,
                               DropResult, EndJob>;

}  // namespace skein::scheduler::jobs
