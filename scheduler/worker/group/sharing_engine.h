// SharingEngine: what an engine has to be able to do so that its instance can share its weights
// with others (SiDP, section 4): the narrow seam between SharedPart, which follows the
// orchestrator's orders, and the engine, which moves the weights.
//
// Each call but CanShare is carried out by the engine in its own time, one after the other in the
// order of the calls, and is answered once by a SharingDone with the same `call`. The owner of the
// engine calls from one thread. It makes EnterShared, SetMode and LeaveShared only between two
// steps, and starts no step until they are answered; the other calls come at any moment, and steps
// go on.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/shared_mode.h"
#include "scheduler/vocabulary/block_range.h"

namespace skein::scheduler {

// Members [first, first + size) of the group whose communicators are of this generation.
struct SharingMembers {
  uint64_t generation = 0;
  int32_t first = 0;
  int32_t size = 0;
};

// From now on the layers that this instance owns are served to the members, in WaS and in `mode`,
// until this is called again for a newer epoch. Nothing else changes. Not OK: it serves nothing
// new.
struct PrepareShared {
  uint64_t call = 0;
  uint64_t epoch = 0;
  SharingMembers members;
  SharedMode mode = SharedMode::kWas;
};
// Drops the weights that others own, and computes with theirs from the next step on. The answer
// says which KV blocks the freed memory is. Not OK: all is as before.
struct EnterShared {
  uint64_t call = 0;
  uint64_t epoch = 0;
  SharedMode mode = SharedMode::kWas;
};
// Serves this mode to the others, too. Not OK: all is as before.
struct ReadyMode {
  uint64_t call = 0;
  uint64_t epoch = 0;
  SharedMode mode = SharedMode::kWas;
};
// Computes in this mode from the next step on. REQUIRES: it is served by all members. Not OK: all
// is as before.
struct SetMode {
  uint64_t call = 0;
  uint64_t epoch = 0;
  SharedMode mode = SharedMode::kWas;
};
// Copies the KV of these blocks, takes the memory of those that came with EnterShared, reads back
// what others own, from them or from the model's files, and computes alone from the next step on.
// REQUIRES: of the blocks that came, no step reads one any more. Not OK: the engine has failed,
// because weights are missing.
struct LeaveShared {
  uint64_t call = 0;
  uint64_t epoch = 0;
  Switch how = Switch::kHard;
  std::vector<BlockMove> moves;
};
using SharingCall = std::variant<PrepareShared, EnterShared, ReadyMode, SetMode, LeaveShared>;

struct SharingDone {
  uint64_t call = 0;
  absl::Status status;
  BlockRange extra = {};  // of EnterShared
};

class SharingEngine {
 public:
  virtual ~SharingEngine() = default;

  // Not OK: it never can; the text names the engine and the reason. Cheap, and always the same.
  virtual absl::Status CanShare() const = 0;
  virtual void Begin(const PrepareShared& call) = 0;
  virtual void Begin(const EnterShared& call) = 0;
  virtual void Begin(const ReadyMode& call) = 0;
  virtual void Begin(const SetMode& call) = 0;
  virtual void Begin(const LeaveShared& call) = 0;
};

}  // namespace skein::scheduler
