// ComputeCalls: SiDP's compute as a service (section 4.3) between ranks that are processes, or
// threads, of one host. A rank calls the owner of a layer with its rows; the owner's serving thread
// takes the rows of all ranks that are there for this layer, its own too, multiplies them with the
// layer's weights at once (one fused product), and puts each rank's results where it waits for
// them. A rank without rows calls nobody, and nobody waits for it; an owner without work of its own
// serves all the same, since its steps take no part.
//
// Nothing here waits for good: a call ends when its owner has answered, has died, has left, or has
// not answered in time. An owner that owes an answer is called no more until it has answered, or
// has answered a probe: its late results then hit memory that no other call uses.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/device/device.h"
#include "engine/host/rank_wire.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/sharing/call_areas.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// Of one rank, so far. Any thread.
struct CallCounts {
  explicit CallCounts(size_t layers) : rows_sent(layers), rows_served(layers) {}

  std::vector<std::atomic<int64_t>> rows_sent;    // to other ranks, by layer, answered
  std::vector<std::atomic<int64_t>> rows_served;  // for all ranks, its own too, by layer
  std::atomic<int64_t> messages = 0;              // calls and probes on their way to others
  std::atomic<int64_t> products = 0;              // fused ones that it computed
  std::atomic<int64_t> given_up = 0;              // calls that an owner did not answer
};

class ComputeCalls {
 public:
  static constexpr int kFusedCallsMax = 4;
  struct Options {
    CallShape shape;
    const ModelConfig* config = nullptr;   // outlives this
    Device* device = nullptr;              // the host; for the serving thread's buffers
    int fused_calls_max = kFusedCallsMax;  // full ones, in one product
    Ops* ops = nullptr;                    // of the serving thread alone
    int rank = 0;
    std::vector<FeedForwardWeights> owned;  // by layer; of those that this rank owns
    std::chrono::nanoseconds answer_max = std::chrono::seconds(1);
  };

  // What the serving thread's buffers take of the device, with the default of fused_calls_max.
  static int64_t BufferBytes(const CallShape& shape, const ModelConfig& config);

  // Begins to serve. `wire` has joined the group; `areas`: by rank, its own the one that it
  // allocated. RESOURCE_EXHAUSTED: no memory for the serving thread's buffers.
  static absl::StatusOr<std::unique_ptr<ComputeCalls>> Make(
      Options options, std::unique_ptr<RankWire> wire,
      std::vector<std::unique_ptr<CallAreas>> areas, std::shared_ptr<CallCounts> counts);

  // Tells the others that it serves no more.
  ~ComputeCalls();

  // The rest is for the engine's thread.

  // Whether the owner can be called now. If it owes an answer it is asked whether it is back.
  bool Reaches(int owner);

  // For the rows of a call: to be filled before it.
  Matrix In(int owner, int64_t rows) const { return Areas(options_.rank).In(owner, rows); }

  // out = the layer's feed-forward part of the rows of In, which are those of `rows`. UNAVAILABLE:
  // the owner did not answer; `out` is as it was. REQUIRES: Reaches(owner), 1 to rows_max rows.
  absl::Status Call(int owner, int layer, const Batch& rows, const Matrix& out);

 private:
  struct Message;
  struct Pending;  // at the owner
  // Of each other rank, as an owner.
  struct Peer {
    uint64_t called = 0;    // the last call's number
    uint64_t answered = 0;  // the last answer's
    int32_t code = 0;       // of that answer
    bool gone = false;      // has died or left
    std::chrono::steady_clock::time_point probed;
    bool owes() const { return called != answered; }
  };

  ComputeCalls(Options options, std::unique_ptr<RankWire> wire,
               std::vector<std::unique_ptr<CallAreas>> areas, std::shared_ptr<CallCounts> counts);
  absl::Status AllocateBuffers();
  const CallAreas& Areas(int rank) const { return *areas_[static_cast<size_t>(rank)]; }

  // Of the serving thread.
  void Serve();
  void Take(const RankWire::Arrival& arrival);
  void ServeFirst();
  bool IsValid(const Pending& call) const;
  bool Gather(const Pending& call, Batch* batch);
  void Answer(const Pending& call, int32_t code);
  void NoteAnswer(int owner, uint64_t number, int32_t code);

  void Send(int to, const Message& message);  // from the engine's thread

  const Options options_;
  const std::unique_ptr<RankWire> wire_;
  const std::vector<std::unique_ptr<CallAreas>> areas_;  // by rank
  const std::shared_ptr<CallCounts> counts_;
  const Model model_;  // for products: its configuration and ops
  RunState state_;     // gate_up, ffn, normed, projected: of the rows of one fused product
  std::deque<Pending> pending_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;                            // by rank
  std::vector<std::pair<int, std::string>> outgoing_;  // rank, message
  bool stop_ = false;
  std::thread server_;
};

}  // namespace skein::engine
