// The transport of a simulated prefill worker's handoffs: carries out, in virtual time, the puts
// that the shipped engine::PutSchedule decides. Each block of a put is copied at its own time, in
// two halves (so that an interrupted put leaves half a block); a put ends within kPutTimeoutUs,
// stalls, or is refused for now because the transport is full.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/emulated/emulated_engine.h"
#include "engine/handoff/layout_map.h"
#include "engine/handoff/put_schedule.h"
#include "scheduler/worker/prefill/prefill_core.h"
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
  uint64_t grant = 0;
  int buffer_index = -1;
  std::shared_ptr<std::vector<std::byte>> buffer;
};

// The place of a buffer's slot among a process's blocks, for Transfers.
inline int32_t PlaceOfSlot(int buffer_index, int32_t slot) {
  return 1'000'000 * (buffer_index + 1) + slot;
}

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
        ended_(std::move(ended)),
        schedule_(engine_->Spec().kv.num_layers, engine_->Spec().kv.block_tokens) {}

  void Open(const scheduler::OpenHandoff& open);
  void Add(const scheduler::AddToHandoff& add);
  // Of the tokens up to `token_end`, those of this worker's share are in `layer`'s local blocks.
  void Written(scheduler::RequestId id, scheduler::Epoch epoch, int layer, int64_t token_end);
  void Start(const scheduler::StartHandoff& start);
  void Use(const scheduler::UseStagingBuffer& use);
  void Taken(const scheduler::PartTaken& taken);
  void Extend(const scheduler::ExtendHandoff& extend);
  void Stop(const scheduler::StopHandoff& stop);

 private:
  using Put = engine::PutSchedule::Put;
  struct Receiver {
    scheduler::StartHandoff start;
    // By rank of the receiver: the granted blocks; or the staging buffer.
    std::vector<RemoteMemory> memories = {};
  };
  // Where a block of a put goes: all of it, or the heads of one rank.
  struct Target {
    scheduler::BlockId from;
    int layer = 0;
    int32_t place = 0;  // for Transfers
    std::byte* to = nullptr;
    std::vector<engine::LayoutPiece> pieces = {};
  };

  engine::PutSchedule::Time Now() const;
  void Advance();  // does what the schedule has decided
  void ArmIdle();
  std::vector<Target> TargetsOf(const Put& put, const Receiver& receiver) const;
  static void CopyHalf(const engine::EmulatedEngine& from, const Target& target, bool second);
  void Post(const Put& put);
  Transfers::Put PutOf(const Put& put, const std::vector<Target>& targets,
                       const Transfers::Grant& grant, bool by_itself) const;
  void PutEnded(uint64_t number, const absl::Status& status);
  void Tell(engine::PutSchedule::Work work);

  Network* network_;
  Process* process_;
  std::shared_ptr<engine::EmulatedEngine> engine_;
  Transfers* transfers_;
  FindMemory find_memory_;
  Ended ended_;
  engine::PutSchedule schedule_;
  std::map<engine::HandoffKey, Receiver> receivers_;
};

}  // namespace skein::sim
