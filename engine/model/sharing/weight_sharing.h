// WeightSharing: how an engine comes to share its feed-forward weights with other ranks of its
// node, and goes back, between steps, with its KV and its sequences as they are (SiDP):
//
//   Offer     at every rank: puts the layers that this rank will own into memory that others map
//   Enter     at every rank, with the offers of all: maps the others' memory, lets go what they own
//   SwitchTo  WaS (weights are read) or CaS (rows are sent); each rank may be in either for a while
//   Leave     at every rank: reads back what others own, from them or from the checkpoint
//
// Orders have an epoch, which grows at each rank: a late one is refused, one that comes twice
// changes nothing. No order waits for another rank, but a rank that has left cannot be entered with
// any more: the order to leave follows when all have entered. A rank that has left still keeps the
// memory of the layers that it owns, so the order in which ranks leave does not matter; it serves
// no calls any more.
//
// The memory is the host's (Device::IsHost), and the weights must be this process's own
// (ModelEngineOptions::weights_device): those where the checkpoint is mapped are shared by all
// processes of the node anyway.
//
// What sharing frees may hold KV meanwhile (ExtraKv): TakeExtraKv after Enter, GiveExtraKv before
// Leave.
//
// Steps of a group or of a ring's tensor-parallel ranks need whole layers: an engine that shares
// refuses the former, and one that may share takes no part in the latter.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/base/fair_mutex.h"
#include "engine/checkpoint/model_config.h"
#include "engine/device/device.h"
#include "engine/device/memory_budget.h"
#include "engine/host/rank_wire.h"
#include "engine/kv/kv_spec.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/layers/sliced_weights.h"
#include "engine/model/layers/slot_weights.h"
#include "engine/model/layers/weight_source.h"
#include "engine/model/sharing/compute_calls.h"
#include "engine/model/sharing/extra_kv.h"
#include "engine/model/sharing/owners_reader.h"
#include "engine/model/sharing/shared_feed_forward.h"
#include "engine/model/sharing/weight_owners.h"
#include "scheduler/vocabulary/block_range.h"

namespace skein::engine {

enum class SharedMode {
  kWeights,  // WaS
  kCompute,  // CaS
};

struct SharingOptions {
  // What slots take of the device, at most.
  int64_t slot_bytes_max = kSlotBytesMax;
  // What a tile that is needed is waited for, at most.
  std::chrono::nanoseconds wait_max = std::chrono::seconds(30);
  // Makes the Ops with which a rank serves the calls of others, on a thread of its own. Null: no
  // CaS.
  std::function<std::unique_ptr<Ops>()> make_serving_ops;
  // Rows of one call at most, the same at all ranks: a step with more reads the weights.
  int64_t call_rows_max = 64;
  // What an owner's answer is waited for before its weights are read instead.
  std::chrono::nanoseconds answer_max = std::chrono::seconds(1);
  // Of weights_device, if it has one: what is shared counts in it as it did before.
  std::shared_ptr<MemoryBudget> budget;
  // A KV pool that fills the device leaves the room that sharing by so many ranks at most takes
  // beyond what it frees: nothing, unless the model has few layers. 0: it leaves none.
  int ranks_max = 0;
  // The engine's device without `budget`, which outlives the engine: its KV is allocated there,
  // with addresses for the blocks that sharing by so many ranks at most makes room for. Null: no
  // block comes.
  Device* kv_device = nullptr;
};

// What a rank tells the others. Plain values, which may travel.
struct SharingOffer {
  int rank = 0;
  int ranks = 1;
  std::string model_hash;
  std::string process;  // ThisProcess()
  std::string layers;   // the name of the memory of what it owns
  std::string calls;    // of the rows that it sends
  std::string wire;     // RankWire::name()
};

// What a rank has read, sent and computed for others so far, over all times that it shared.
struct SharingTotals {
  int64_t bytes_from_owners = 0;  // of weights
  int64_t bytes_from_file = 0;
  int64_t rows_sent = 0;    // to other ranks, answered
  int64_t rows_served = 0;  // for all ranks, its own too
  int64_t calls_given_up = 0;
};

class WeightSharing {
 public:
  explicit WeightSharing(SharingOptions options);
  ~WeightSharing();
  WeightSharing(const WeightSharing&) = delete;

  // The calls from here on are for the engine's owner, one thread at a time. They may come while
  // steps run: each waits for the step that does, and the next step waits for it.

  // After an error its weights are all its own, as before. FAILED_PRECONDITION: no engine has this
  // yet, its weights are not its own, or it shares. INVALID_ARGUMENT: not a rank of 2 or more.
  // RESOURCE_EXHAUSTED: no memory that others can map. UNAVAILABLE: no wire between processes.
  absl::StatusOr<SharingOffer> Offer(int rank, int ranks);

  // `offers`: of all ranks, by rank, this one's as Offer gave it. What others own is let go: their
  // pages are the system's again when this returns. After an error it has all weights as before:
  // FAILED_PRECONDITION (a late epoch, or no Offer), INVALID_ARGUMENT (offers that do not fit
  // together, a mode that this engine has no Ops for), UNAVAILABLE (a rank has ended, or is not on
  // this host), RESOURCE_EXHAUSTED (no memory for slots, or for a wire). Another try takes another
  // Offer.
  absl::Status Enter(uint64_t epoch, std::span<const SharingOffer> offers, SharedMode mode);

  // FAILED_PRECONDITION: a late epoch, or it does not share. INVALID_ARGUMENT: as Enter.
  absl::Status SwitchTo(uint64_t epoch, SharedMode mode);

  // FAILED_PRECONDITION: a late epoch, or it does not share; nothing has changed. After other
  // errors it shares on, in WaS, and serves no calls: RESOURCE_EXHAUSTED (no memory for the
  // weights), UNAVAILABLE (names an owner that has ended and its layer, which the checkpoint does
  // not give either).
  absl::Status Leave(uint64_t epoch);

  // The KV blocks that what is free of the budget now has room for, which the owner may use from
  // now on; none: {}. REQUIRES: it shares, and has not taken them.
  BlockRange TakeExtraKv();
  // Copies the KV of `moves`; none of the extra blocks may be used any more. The device's errors.
  absl::Status GiveExtraKv(std::span<const BlockMove> moves);

  bool shares() const { return shares_; }
  SharedMode mode() const { return mode_; }
  // By shape, whether it shares or not. REQUIRES: an engine.
  SharingBytes Bytes(int ranks) const;
  // Since Enter; null before the first. Any thread may read what they point to.
  std::shared_ptr<const ReadCounts> read_counts() const { return read_counts_; }
  std::shared_ptr<const CallCounts> call_counts() const { return call_counts_; }
  SharingTotals Totals() const;  // any thread

  // The rest is for the engine.

  // Held during each step.
  std::unique_lock<FairMutex> DuringStep() { return std::unique_lock(steps_); }
  // SharingOptions::ranks_max. `layers`: of the whole model, by shape.
  int64_t RoomFor(const std::vector<FeedForwardWeights>& layers, const ModelConfig& config,
                  DType activation) const;
  // The most KV blocks that sharing makes room for, where it is `kv_device` that has them. `kv`:
  // with the own ones.
  int64_t ExtraBlocksFor(const std::vector<FeedForwardWeights>& layers, const ModelConfig& config,
                         DType activation, const KvSpec& kv) const;
  const SharingOptions& options() const { return options_; }

  // What sharing changes of a loaded model.
  struct Parts {
    const ModelConfig* config = nullptr;
    Model* model = nullptr;
    ModelWeights* weights = nullptr;
    std::vector<DeviceBuffer>* feed_forward = nullptr;  // by layer: their own memory
    std::unique_ptr<WeightSource>* source = nullptr;
    WeightSlices* slices = nullptr;
    ExtraKv* extra_kv = nullptr;  // null: no block comes
    Device* device = nullptr;     // where the weights are; null: where the checkpoint is mapped
    std::string model_dir;
    std::string model_hash;
  };
  void Bind(Parts parts);
  void Unbind();

  // Of a step that runs while it shares.
  SharedFeedForward FeedForward(RunState* state) const;

 private:
  absl::Status CheckEpoch(uint64_t epoch) const;
  absl::Status CheckMode(SharedMode mode) const;
  absl::Status CheckOffers(std::span<const SharingOffer> offers) const;
  CallShape ShapeOfCalls() const;
  absl::Status MoveOut();  // of what it owns, into shared memory
  absl::Status MoveHome();
  void BeginCounts();
  absl::Status MapOthers(std::span<const SharingOffer> offers, std::vector<LayersOwner>* owners,
                         std::vector<std::unique_ptr<CallAreas>>* areas) const;
  absl::Status BeginCalls(std::vector<std::unique_ptr<CallAreas>> areas);
  absl::Status MakeSlots();
  std::unique_ptr<FeedForwardReader> MakeReader() const;
  absl::Status ReadBack();
  void Use(std::unique_ptr<WeightSource> source);
  // What sharing by `ranks` frees of the budget at each of them, less what it takes.
  std::vector<int64_t> Gains(const std::vector<FeedForwardWeights>& layers,
                             const ModelConfig& config, DType activation, int ranks) const;
  bool Owns(int layer) const { return owners_.OwnerOf(layer) == rank_; }
  LayerWeights& Layer(int layer) { return parts_.weights->layers[static_cast<size_t>(layer)]; }

  const SharingOptions options_;
  FairMutex steps_;
  Parts parts_;
  std::vector<FeedForwardWeights> shapes_;  // by layer
  WeightOwners owners_;                     // since Offer
  int rank_ = -1;                           // since Offer
  std::shared_ptr<SharedLayers> owned_;     // since Offer
  int64_t owned_taken_ = 0;                 // of the budget
  std::unique_ptr<RankWire> wire_;          // between Offer and Enter
  std::unique_ptr<CallAreas> calls_areas_;  // between Offer and Enter
  SharingOffer offer_;

  uint64_t epoch_ = 0;
  bool shares_ = false;
  SharedMode mode_ = SharedMode::kWeights;
  std::vector<LayersOwner> others_;  // by rank
  SlotWeights* slots_ = nullptr;     // *parts_.source while it shares
  std::unique_ptr<Ops> serving_ops_;
  std::unique_ptr<ComputeCalls> calls_;
  mutable std::mutex counts_mu_;             // of the pointers, for Totals
  SharingTotals totals_before_;              // without what these count
  std::shared_ptr<ReadCounts> read_counts_;  // since Enter
  std::shared_ptr<CallCounts> call_counts_;  // since Enter
};

}  // namespace skein::engine
