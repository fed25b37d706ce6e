// The handoff sender of a simulated prefill worker: puts blocks layer by layer into the decode
// worker's memory, each at its own virtual time, in two halves (so that an interrupted put leaves
// half a block). Keeps HandoffSender's promises: nothing is posted after `post_until`, every put
// ends within kPutTimeoutUs, one end per handoff. Staged handoffs put into the slots of a buffer of
// the decode worker, which is given back when there was nothing to put for kIdleUs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/emulated/emulated_engine.h"
#include "scheduler/worker/prefill_core.h"
#include "tests/sim/network.h"
#include "tests/sim/transfers.h"

namespace skein::sim {

inline constexpr TimeUs kPutTimeoutUs = 60 * scheduler::kMillisecondUs;
inline constexpr TimeUs kIdleUs = 5 * scheduler::kMillisecondUs;

// A decode worker's memory, as its incarnation described it: its KV regions, or a staging buffer.
struct RemoteMemory {
  Process* process = nullptr;
  uint64_t generation = 0;
  std::shared_ptr<engine::EmulatedEngine> engine;
  int backend = -1;
  std::shared_ptr<std::vector<std::byte>> buffer;
};

// The place of a buffer's slot among a process's blocks, for Transfers.
inline int32_t PlaceOfSlot(int backend, int32_t slot) { return 1'000'000 * (backend + 1) + slot; }

class Sender {
 public:
  using Ended = std::function<void(scheduler::PrefillEvent)>;
  using FindMemory = std::function<RemoteMemory(const std::string& description)>;

  Sender(Network* network, Process* process, std::shared_ptr<engine::EmulatedEngine> engine,
         Transfers* transfers, FindMemory find_memory, Ended ended)
      : network_(network),
        process_(process),
        engine_(std::move(engine)),
        transfers_(transfers),
        find_memory_(std::move(find_memory)),
        ended_(std::move(ended)) {}

  void Open(const scheduler::OpenHandoff& open);
  void Add(const scheduler::AddToHandoff& add);
  // Of the tokens up to `token_end`, those of this worker's share are in `layer`'s local blocks.
  void Written(scheduler::RequestId id, scheduler::Epoch epoch, int layer, int64_t token_end);
  void Start(const scheduler::StartHandoff& start);
  void Use(const scheduler::UseBackend& use);
  void Taken(const scheduler::PartTaken& taken);
  void Extend(const scheduler::ExtendHandoff& extend);
  void Stop(const scheduler::StopHandoff& stop);

 private:
  using Key = std::pair<scheduler::RequestId, scheduler::Epoch>;
  struct Share {
    int64_t prompt_tokens = 0;
    std::vector<scheduler::PutBlock> blocks;
    bool more = false;
    std::vector<int64_t> written;  // token_end per layer
  };
  struct Handoff {
    scheduler::StartHandoff start;
    std::vector<size_t> next_block;  // per layer
    std::vector<int64_t> bytes;      // per layer, completed
    int under_way = 0;
    bool stopping = false;
    absl::Status failure;
    // Staged:
    bool has_buffer = false;
    bool waits = false;  // said so
    RemoteMemory buffer;
    std::vector<int32_t> free_slots;
    int untaken = 0;    // arrived, not taken
    uint64_t uses = 0;  // counts what happened to the buffer
  };
  // One put: bytes of a local block to a place of the remote process.
  struct Put {
    int layer = 0;
    scheduler::BlockId from;
    RemoteMemory memory;
    int32_t place = 0;  // of the target, for Transfers
    std::byte* to = nullptr;
    scheduler::StagedBlock staged;
  };

  void Pump(const Key& key);
  Put NextPut(const Key& key, Handoff& handoff, int layer);
  void Post(const Key& key, Handoff& handoff, const Put& put);
  void Completed(const Key& key, const Put& put, absl::Status status);
  bool HasAnything(const Key& key, const Handoff& handoff) const;
  void Touch(const Key& key, Handoff& handoff);  // the buffer is not idle
  void MaybeEnd(const Key& key);
  bool HasNext(const Key& key, const Handoff& handoff, int layer) const;

  Network* network_;
  Process* process_;
  std::shared_ptr<engine::EmulatedEngine> engine_;
  Transfers* transfers_;
  FindMemory find_memory_;
  Ended ended_;
  std::map<Key, Share> shares_;
  std::map<Key, Handoff> handoffs_;
};

}  // namespace skein::sim
